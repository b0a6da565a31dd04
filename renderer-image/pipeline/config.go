package pipeline

import (
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// config returns a copy of the function's configuration as it is now: an earlier function may have changed the file.
func (r *renderer) config(p *pkg, f *functionRef) (*yaml.RNode, error) {
	switch {
	case f.configMap != nil:
		return inlineConfig(f.configMap), nil
	case f.configPath == "":
		return nil, nil
	}
	file, at := p.file(f.configPath), p.file(kptfileName)+": "+f.field+".configPath"
	if owner := r.ownerOf(file); owner != p {
		return nil, failf(InvalidPackage, "%s: %q is part of the sub-package %q: use a file of the package itself",
			at, f.configPath, owner.dir)
	}
	var found *resource
	for _, resource := range r.resources {
		if resource.Path != file {
			continue
		}
		if found != nil {
			return nil, failf(InvalidPackage, "%s: %q has more than one YAML document: leave only the configuration in it",
				at, f.configPath)
		}
		found = resource
	}
	if found == nil {
		found = r.configAsRead(file)
	}
	if found == nil {
		return nil, failf(InvalidPackage, "%s: there is no resource file %q in the package: add it, or correct the path",
			at, f.configPath)
	}
	if problem := krmProblem(found.Object.YNode()); problem != "" {
		return nil, failf(InvalidPackage, "%s: %s: the functionConfig has none: set it", file, problem)
	}
	return found.Object.Copy(), nil
}

// configAsRead is the configuration as it was before the render, for when an earlier function deleted or moved it; nil if it
// never was there.
func (r *renderer) configAsRead(file string) *resource {
	if r.original[file] == nil {
		return nil
	}
	documents, err := parseFile(file, r.files[file])
	if err != nil || len(documents) != 1 {
		return nil
	}
	return documents[0]
}

// inlineConfig makes the ConfigMap that a function gets for the configMap in the Kptfile.
func inlineConfig(entries []configEntry) *yaml.RNode {
	scalar := func(value string) *yaml.Node {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: yaml.NodeTagString, Value: value}
	}
	mapping := func(content ...*yaml.Node) *yaml.Node {
		return &yaml.Node{Kind: yaml.MappingNode, Tag: yaml.NodeTagMap, Content: content}
	}
	data := mapping()
	for _, entry := range entries {
		data.Content = append(data.Content, scalar(entry.name), scalar(entry.text))
	}
	return yaml.NewRNode(mapping(
		scalar("apiVersion"), scalar("v1"),
		scalar("kind"), scalar("ConfigMap"),
		scalar("metadata"), mapping(scalar("name"), scalar("function-input")),
		scalar("data"), data,
	))
}
