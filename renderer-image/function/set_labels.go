package function

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// SetLabels sets labels on every resource except local configuration: in metadata, in the selectors and pod templates that
// must agree with it, in volume claim templates and, where they select something already, in network policies, affinities
// and topology spread constraints.
//
// The functionConfig is a ConfigMap whose data are the labels, or a SetLabels with the field labels and, optionally,
// additionalLabelFields: kustomize field specs of more places to label.
func SetLabels(_ context.Context, list *ResourceList) error {
	labels, additional, err := labelsOf(list.Config)
	if err != nil {
		return err
	}
	if len(labels) == 0 {
		list.report(Warning, "the functionConfig gives no labels")
		return nil
	}
	slices.SortFunc(labels, func(a, b entry) int { return strings.Compare(a.key, b.key) })
	total := 0
	for _, item := range list.Items {
		if isLocalConfig(item.Object) {
			continue
		}
		setter := labelSetter{labels: labels}
		setter.setResource(item.Object)
		total += setter.count
		if setter.count > 0 {
			list.reportItem(item, Info, "metadata.labels", "set %d labels", setter.count)
		}
		if err := setInFields(list, item, additional, labels); err != nil {
			return fmt.Errorf("%s: the functionConfig's field additionalLabelFields: %w", item.Path, err)
		}
	}
	list.report(Info, "set %d labels in total", total)
	return nil
}

func labelsOf(config *yaml.RNode) (labels []entry, additional []types.FieldSpec, err error) {
	const wanted = "a ConfigMap with the labels as data, or a SetLabels of " + configAPIVersion
	switch {
	case config == nil:
		return nil, nil, wrongConfig(config, wanted)
	case isConfigMap(config):
		labels, err = data(config)
		return labels, nil, err
	case !isOwnKind(config, "SetLabels"):
		return nil, nil, wrongConfig(config, wanted)
	}
	root := config.YNode()
	if child(root, "labels") == nil {
		return nil, nil, errors.New("the functionConfig's field labels is missing: set it to a mapping of labels")
	}
	if labels, err = stringMap(child(root, "labels"), "labels"); err != nil {
		return nil, nil, err
	}
	additional, err = fieldSpecs(root, "additionalLabelFields")
	return labels, additional, err
}

type labelSetter struct {
	labels []entry
	count  int
}

func (s *labelSetter) setResource(object *yaml.RNode) {
	root, m := object.YNode(), metaOf(object)
	s.create(root, "metadata", "labels")

	core := m.apiVersion == "v1"
	workload := m.kind == "Deployment" || m.kind == "ReplicaSet" || m.kind == "DaemonSet" ||
		(m.kind == "StatefulSet" && m.group() == "apps")
	job := m.kind == "Job" && m.group() == "batch"
	switch {
	case core && (m.kind == "Service" || m.kind == "ReplicationController"):
		s.create(root, "spec", "selector")
	case workload:
		s.create(root, "spec", "selector", "matchLabels")
	case job || (m.kind == "PodDisruptionBudget" && m.group() == "policy"):
		s.update(root, "spec", "selector", "matchLabels")
	}
	if workload || job || (core && m.kind == "ReplicationController") {
		s.setPod(find(root, "spec", "template"))
	}
	if m.kind == "CronJob" && m.group() == "batch" {
		template := find(root, "spec", "jobTemplate")
		s.createIn(template, "metadata", "labels")
		s.update(template, "spec", "selector", "matchLabels")
		s.setPod(find(template, "spec", "template"))
	}
	if m.kind == "StatefulSet" && m.group() == "apps" {
		for _, claim := range elements(root, "spec", "volumeClaimTemplates") {
			s.createIn(claim, "metadata", "labels")
			s.update(claim, "spec", "selector", "matchLabels")
		}
	}
	if m.kind == "NetworkPolicy" && m.group() == "networking.k8s.io" {
		s.setNetworkPolicy(find(root, "spec"))
	}
}

func (s *labelSetter) setPod(template *yaml.Node) {
	s.createIn(template, "metadata", "labels")
	spec := child(template, "spec")
	for _, constraint := range elements(spec, "topologySpreadConstraints") {
		s.update(constraint, "labelSelector", "matchLabels")
	}
	for _, affinity := range []string{"podAffinity", "podAntiAffinity"} {
		for _, term := range elements(spec, "affinity", affinity, "preferredDuringSchedulingIgnoredDuringExecution") {
			s.update(term, "podAffinityTerm", "labelSelector", "matchLabels")
		}
		for _, term := range elements(spec, "affinity", affinity, "requiredDuringSchedulingIgnoredDuringExecution") {
			s.update(term, "labelSelector", "matchLabels")
		}
	}
}

func (s *labelSetter) setNetworkPolicy(spec *yaml.Node) {
	s.update(spec, "podSelector", "matchLabels")
	for _, rule := range elements(spec, "ingress") {
		for _, peer := range elements(rule, "from") {
			s.update(peer, "podSelector", "matchLabels")
		}
	}
	for _, rule := range elements(spec, "egress") {
		for _, peer := range elements(rule, "to") {
			s.update(peer, "podSelector", "matchLabels")
		}
	}
}

// createIn is create for a part that may be missing.
func (s *labelSetter) createIn(node *yaml.Node, path ...string) {
	if node != nil && node.Kind == yaml.MappingNode {
		s.create(node, path...)
	}
}

// create sets all labels in the mapping at path.
func (s *labelSetter) create(node *yaml.Node, path ...string) {
	for _, label := range s.labels {
		if setString(node, label.value, append(path[:len(path):len(path)], label.key)...) {
			s.count++
		}
	}
}

// update sets those labels that the mapping at path has already: adding to a selector would make it select less.
func (s *labelSetter) update(node *yaml.Node, path ...string) {
	selector := find(node, path...)
	for _, label := range s.labels {
		if child(selector, label.key) != nil && setString(selector, label.value, label.key) {
			s.count++
		}
	}
}
