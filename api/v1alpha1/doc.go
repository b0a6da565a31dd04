// Package v1alpha1 is the API group kiln.dev/v1alpha1: PackageRevision, the contents of a package and where it stands,
// and RenderClass, the admin's template for renders.
//
// +kubebuilder:object:generate=true
// +groupName=kiln.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is kiln.dev/v1alpha1.
var GroupVersion = schema.GroupVersion{Group: "kiln.dev", Version: "v1alpha1"}

// AddToScheme adds the types of this group and version to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&PackageRevision{}, &PackageRevisionList{},
		&RenderClass{}, &RenderClassList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
