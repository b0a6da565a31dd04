package function

import (
	"fmt"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

const (
	configAPIVersion = "fn.kpt.dev/v1alpha1"
	// packageContextName is the ConfigMap that package tools generate; its data.name is the package's name.
	packageContextName = "kptfile.kpt.dev"
	// inlineConfigName is the name of the ConfigMap that stands for a configMap in a Kptfile.
	inlineConfigName = "function-input"
)

// data returns the data of a ConfigMap in the order written, which makes results repeatable.
func data(config *yaml.RNode) ([]entry, error) {
	return stringMap(child(config.YNode(), "data"), "data")
}

type entry struct{ key, value string }

// stringMap reads a mapping of scalars.
func stringMap(node *yaml.Node, field string) ([]entry, error) {
	if node == nil || node.ShortTag() == yaml.NodeTagNull {
		return nil, nil
	}
	if node.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("the functionConfig's field %s must be a mapping of strings", field)
	}
	entries := make([]entry, 0, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if key.Kind != yaml.ScalarNode || value.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("the functionConfig's field %s.%s must be a string", field, key.Value)
		}
		entries = append(entries, entry{key.Value, value.Value})
	}
	return entries, nil
}

// isConfigMap and isOwnKind tell the two shapes a functionConfig may have.
func isConfigMap(config *yaml.RNode) bool {
	m := metaOf(config)
	return m.apiVersion == "v1" && m.kind == "ConfigMap"
}

func isOwnKind(config *yaml.RNode, kind string) bool {
	m := metaOf(config)
	return m.apiVersion == configAPIVersion && m.kind == kind
}

// wrongConfig is the error for a functionConfig that a function cannot read.
func wrongConfig(config *yaml.RNode, wanted string) error {
	if config == nil {
		return fmt.Errorf("no functionConfig is given: set configMap or configPath to %s", wanted)
	}
	m := metaOf(config)
	return fmt.Errorf("the functionConfig is apiVersion %q, kind %q: use %s", m.apiVersion, m.kind, wanted)
}
