package function

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"
)

// placeholderName is what blueprints call resources that take the name of the package.
const placeholderName = "packagename"

// SetNamePrefix puts a prefix before the names that do not begin with it. Fields that refer to a renamed resource follow, and so
// do depends-on annotations. Local configuration keeps its names, and so do Namespaces, CustomResourceDefinitions and
// APIServices.
//
// The functionConfig is a ConfigMap with data.prefix, or a SetNamePrefix with the field prefix. With oldPrefix, names that are that
// prefix, alone or before a dash, get the new one in its place, and others stay. Without a prefix, "packagename" is replaced
// in this way by the name in the package context.
func SetNamePrefix(_ context.Context, list *ResourceList) error {
	config, err := readNamePrefix(list)
	if err != nil {
		return err
	}
	r := newRenamer(list)
	for i, item := range list.Items {
		m := metaOf(item.Object)
		if m.name == "" || keepsName(m) || isLocalConfig(item.Object) {
			continue
		}
		if err := r.rename(i, config.apply(m.name)); err != nil {
			return fmt.Errorf("%s: %w", item.Path, err)
		}
	}
	return r.finish()
}

type namePrefix struct {
	prefix, old string
}

func readNamePrefix(list *ResourceList) (*namePrefix, error) {
	const wanted = "a ConfigMap with data.prefix, or a SetNamePrefix of " + configAPIVersion
	var from *yaml.Node
	switch config := list.Config; {
	case config == nil:
	case isPackageContext(config):
		// Its data.name is found below.
	case isConfigMap(config):
		from = child(config.YNode(), "data")
	case isOwnKind(config, "SetNamePrefix"):
		from = config.YNode()
	default:
		return nil, wrongConfig(config, wanted)
	}
	c := &namePrefix{prefix: stringAt(from, "prefix"), old: stringAt(from, "oldPrefix")}
	if c.prefix != "" {
		return c, nil
	}
	if c.prefix = packageName(list); c.prefix == "" {
		return nil, errors.New("the functionConfig's field prefix is empty, and there is no package context: set prefix")
	}
	if c.old == "" {
		c.old = placeholderName
	}
	return c, nil
}

// packageName returns the name in the package context, that of the outermost package; empty without one.
func packageName(list *ResourceList) string {
	name, depth := "", -1
	for _, item := range list.Items {
		if !isPackageContext(item.Object) {
			continue
		}
		if d := strings.Count(item.Path, "/"); depth < 0 || d < depth {
			name, depth = stringAt(item.Object.YNode(), "data", "name"), d
		}
	}
	if list.Config != nil && isPackageContext(list.Config) {
		name = stringAt(list.Config.YNode(), "data", "name")
	}
	return name
}

func isPackageContext(object *yaml.RNode) bool {
	return isConfigMap(object) && metaOf(object).name == packageContextName
}

func (c *namePrefix) apply(name string) string {
	if c.old == "" {
		if strings.HasPrefix(name, c.prefix) {
			return name
		}
		return c.prefix + name
	}
	if rest, found := strings.CutPrefix(name, c.old); found && (rest == "" || rest[0] == '-') {
		return c.prefix + rest
	}
	return name
}
