package function

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// SetAnnotations sets annotations on every resource, in metadata and in the pod and job templates of workloads.
//
// The functionConfig is a ConfigMap whose data are the annotations, or a SetAnnotations with the field annotations and,
// optionally, additionalAnnotationFields: kustomize field specs of more places to annotate.
func SetAnnotations(_ context.Context, list *ResourceList) error {
	config, err := readAnnotations(list.Config)
	if err != nil {
		return err
	}
	if len(config.annotations) == 0 {
		list.report(Warning, "the functionConfig gives no annotations")
		return nil
	}
	slices.SortFunc(config.annotations, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	for _, item := range list.Items {
		for _, path := range annotationPaths(metaOf(item.Object)) {
			changed := false
			for _, annotation := range config.annotations {
				full := append(path[:len(path):len(path)], annotation.key)
				changed = setString(item.Object.YNode(), annotation.value, full...) || changed
			}
			if changed {
				list.reportItem(item, Info, strings.Join(path, "."), "set annotations")
			}
		}
		if err := setInFields(list, item, config.additional, config.annotations); err != nil {
			return fmt.Errorf("%s: the functionConfig's field additionalAnnotationFields: %w", item.Path, err)
		}
	}
	return nil
}

type annotationsConfig struct {
	annotations []entry
	additional  []types.FieldSpec
}

func readAnnotations(config *yaml.RNode) (*annotationsConfig, error) {
	const wanted = "a ConfigMap with the annotations as data, or a SetAnnotations of " + configAPIVersion
	c := &annotationsConfig{}
	var err error
	switch {
	case config == nil:
		return nil, wrongConfig(config, wanted)
	case isConfigMap(config):
		c.annotations, err = data(config)
		return c, err
	case !isOwnKind(config, "SetAnnotations"):
		return nil, wrongConfig(config, wanted)
	}
	if c.annotations, err = stringMap(child(config.YNode(), "annotations"), "annotations"); err != nil {
		return nil, err
	}
	c.additional, err = fieldSpecs(config.YNode(), "additionalAnnotationFields")
	return c, err
}

// annotationPaths are the places where a resource of that kind carries annotations.
func annotationPaths(m meta) [][]string {
	paths := [][]string{{"metadata", "annotations"}}
	switch {
	case m.kind == "Deployment", m.kind == "ReplicaSet", m.kind == "DaemonSet", m.kind == "StatefulSet",
		m.kind == "ReplicationController" && m.apiVersion == "v1",
		m.kind == "Job" && m.group() == "batch":
		paths = append(paths, []string{"spec", "template", "metadata", "annotations"})
	case m.kind == "CronJob" && m.group() == "batch":
		paths = append(paths,
			[]string{"spec", "jobTemplate", "metadata", "annotations"},
			[]string{"spec", "jobTemplate", "spec", "template", "metadata", "annotations"})
	}
	return paths
}
