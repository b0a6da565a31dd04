package function

import (
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/nameref"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// keepsName says that no function adds to the resource's name, since it must agree with what is in it, or with what is outside
// of the package.
func keepsName(m meta) bool {
	switch m.kind {
	case "Namespace", "CustomResourceDefinition":
		return true
	case "APIService":
		return m.group() == "apiregistration.k8s.io"
	}
	return m.isKptfile() || m.name == packageContextName
}

// setValue is the message about a field that got another value.
const setValue = "set the value to %q"

// renamer gives resources new names and lets the fields that refer to them follow. What refers to what is kustomize's
// decision; it works on copies, because it keeps notes in the resources.
type renamer struct {
	list *ResourceList
	// copies are of list.Items, in the same order.
	copies []*resource.Resource
	// renamed are the copies with a new name, by their old one.
	renamed map[string][]*resource.Resource
	// dependencies maps what a depends-on annotation calls a renamed resource to its new name.
	dependencies map[string]string
}

func newRenamer(list *ResourceList) *renamer {
	r := &renamer{
		list:         list,
		copies:       make([]*resource.Resource, len(list.Items)),
		renamed:      map[string][]*resource.Resource{},
		dependencies: map[string]string{},
	}
	for i, item := range list.Items {
		tree := yaml.CopyYNode(withoutAliases(item.Object.YNode()))
		r.copies[i] = &resource.Resource{RNode: *yaml.NewRNode(tree)}
	}
	return r
}

// rename gives item i a new name.
func (r *renamer) rename(i int, name string) error {
	m := metaOf(r.list.Items[i].Object)
	if name == m.name {
		return nil
	}
	renamed := r.copies[i]
	renamed.StorePreviousId()
	if err := renamed.SetName(name); err != nil {
		return err
	}
	r.renamed[m.name] = append(r.renamed[m.name], renamed)
	r.dependencies[dependsOnID(r.list.Items[i].Object)] = name
	r.dependencies[m.group()+"/"+m.kind+"/"+m.name] = name
	return nil
}

// finish lets all references follow, and brings what changed into the items.
func (r *renamer) finish() error {
	if err := r.checkNames(); err != nil {
		return err
	}
	for i, referrer := range r.copies {
		if err := r.follow(referrer); err != nil {
			return fmt.Errorf("%s: %w", r.list.Items[i].Path, err)
		}
	}
	for i, item := range r.list.Items {
		changed := r.copies[i]
		changed.RemoveBuildAnnotations()
		takeOver(item.Object.YNode(), changed.YNode(), "", func(field, old, value string) {
			r.list.reportChange(item, field, old, value, setValue, value)
		})
		r.followDependsOn(item)
	}
	return nil
}

// checkNames refuses new names that make one resource of two.
func (r *renamer) checkNames() error {
	type id struct{ group, kind, namespace, name string }
	first := map[id]*Item{}
	for i, item := range r.list.Items {
		old, name := metaOf(item.Object), r.copies[i].GetName()
		key := id{old.group(), old.kind, old.namespace, name}
		other, taken := first[key]
		if !taken {
			first[key] = item
			continue
		}
		if otherOld := metaOf(other.Object); otherOld.name != old.name {
			return fmt.Errorf("%s and %s: the %ss %q and %q would both be called %q: rename one of them",
				other.Path, item.Path, old.kind, otherOld.name, old.name, name)
		}
	}
	return nil
}

// follow updates the names that one resource holds.
func (r *renamer) follow(referrer *resource.Resource) error {
	candidates, err := r.candidates(referrer)
	if err != nil || candidates.Size() == 0 {
		return err
	}
	kind := referrer.GetKind()
	for _, reference := range nameReferences() {
		if reference.field.Kind != kind {
			continue
		}
		filter := nameref.Filter{
			Referrer:           referrer,
			NameFieldToUpdate:  reference.field,
			ReferralTarget:     reference.target,
			ReferralCandidates: candidates,
		}
		if err := referrer.ApplyFilter(filter); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns the renamed resources that referrer can mean: only those whose old name it holds somewhere, since
// kustomize compares each field with each candidate.
func (r *renamer) candidates(referrer *resource.Resource) (resmap.ResMap, error) {
	held, seen := resmap.New(), map[resid.ResId]bool{}
	var err error
	eachScalar(referrer.YNode(), func(value string) {
		for _, renamed := range r.renamed[value] {
			id := renamed.CurId()
			if seen[id] || err != nil {
				continue
			}
			seen[id] = true
			err = held.Append(renamed)
		}
	})
	if err != nil || held.Size() == 0 {
		return held, err
	}
	return held.SubsetThatCouldBeReferencedByResource(referrer)
}

func eachScalar(node *yaml.Node, visit func(string)) {
	if node.Kind == yaml.ScalarNode {
		visit(node.Value)
	}
	for _, content := range node.Content {
		eachScalar(content, visit)
	}
}

// followDependsOn updates the names in a depends-on annotation, which kustomize does not know.
func (r *renamer) followDependsOn(item *Item) {
	path := []string{"metadata", "annotations", dependsOnAnnotation}
	old := stringAt(item.Object.YNode(), path...)
	if old == "" {
		return
	}
	references := strings.Split(old, ",")
	for i, reference := range references {
		reference = strings.TrimSpace(reference)
		if name, found := r.dependencies[reference]; found {
			references[i] = reference[:strings.LastIndexByte(reference, '/')+1] + name
		}
	}
	value := strings.Join(references, ",")
	if value != old && setString(item.Object.YNode(), value, path...) {
		r.list.reportChange(item, strings.Join(path, "."), old, value, setValue, value)
	}
}

// takeOver brings the scalars that differ in changed, and the fields that are new there, into node. Nothing else of node
// changes, so that it keeps its comments and quotes.
func takeOver(node, changed *yaml.Node, path string, report func(field, old, value string)) {
	if node.Kind == yaml.AliasNode {
		if sameValue(node.Alias, changed) {
			return
		}
		// Other places keep what the anchor stands for.
		*node = *withoutAliases(yaml.CopyYNode(node.Alias))
	}
	switch {
	case node.Kind == yaml.MappingNode && changed.Kind == yaml.MappingNode:
		for i := 0; i+1 < len(changed.Content); i += 2 {
			key, value := changed.Content[i].Value, changed.Content[i+1]
			field := strings.TrimPrefix(path+"."+key, ".")
			if old := child(node, key); old != nil {
				takeOver(old, value, field, report)
				continue
			}
			// A YAML merge key may have brought the field in.
			if merged := child(withoutAliases(node), key); merged == nil || !sameValue(merged, value) {
				node.Content = append(node.Content, scalar(key), value)
				report(field, "", value.Value)
			}
		}
	case node.Kind == yaml.SequenceNode && changed.Kind == yaml.SequenceNode:
		for i := range min(len(node.Content), len(changed.Content)) {
			takeOver(node.Content[i], changed.Content[i], path+"["+strconv.Itoa(i)+"]", report)
		}
	case node.Kind == yaml.ScalarNode && changed.Kind == yaml.ScalarNode && node.Value != changed.Value:
		report(path, node.Value, changed.Value)
		node.Value, node.Tag = changed.Value, changed.Tag
	}
}
