package function

import (
	"context"
	"strings"
)

// RemoveLocalConfigResources removes the resources that never reach a cluster: those with the annotation
// config.kubernetes.io/local-config: "true". A package keeps its Kptfile. There is no functionConfig.
func RemoveLocalConfigResources(_ context.Context, list *ResourceList) error {
	kept := make([]*Item, 0, len(list.Items))
	for _, item := range list.Items {
		local := stringAt(item.Object.YNode(), "metadata", "annotations", localConfigAnnotation)
		if !strings.EqualFold(local, "true") || metaOf(item.Object).isKptfile() {
			kept = append(kept, item)
			continue
		}
		list.reportItem(item, Info, "", "removed the resource")
	}
	if removed := len(list.Items) - len(kept); removed > 0 {
		list.report(Info, "removed %d resources", removed)
	} else {
		list.report(Info, `no resource has the annotation %s: "true"`, localConfigAnnotation)
	}
	list.Items = kept
	return nil
}
