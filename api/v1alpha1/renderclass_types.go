package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationDefaultRenderClass with the value "true" makes a RenderClass the one for PackageRevisions that name none.
const AnnotationDefaultRenderClass = "kiln.dev/is-default-class"

// RenderClass says what a render's Job looks like and may use, as a StorageClass says for volumes. It is the admin's;
// PackageRevisions name it. A changed RenderClass does not render anything again by itself.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=kiln
// +kubebuilder:printcolumn:name="Default",type=string,JSONPath=`.metadata.annotations.kiln\.dev/is-default-class`
// +kubebuilder:printcolumn:name="Deadline",type=integer,JSONPath=`.spec.activeDeadlineSeconds`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RenderClass struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What a render's Job looks like and may use.
	// +optional
	Spec RenderClassSpec `json:"spec,omitempty"`
}

// RenderClassList is a list of RenderClasses.
//
// +kubebuilder:object:root=true
type RenderClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RenderClass `json:"items"`
}

// RenderClassSpec is what a render's Job looks like and may use. Its defaults are those of an installation without any
// RenderClass.
type RenderClassSpec struct {
	// CPU and memory of the render's container. What is left out is filled in, so that a ResourceQuota over requests
	// and limits never refuses the pod for a missing one: requests of 100m CPU and 64Mi memory, a limit of 512Mi memory,
	// and a limit of 1 CPU.
	// +optional
	Resources *RenderResources `json:"resources,omitempty"`

	// How long a render may take from the start of its Job, in seconds. A render that takes longer has failed with the
	// reason DeadlineExceeded.
	// +optional
	// +default=600
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	ActiveDeadlineSeconds *int64 `json:"activeDeadlineSeconds,omitempty"`

	// How often a pod that failed through no fault of the package is replaced before the Job is given up and Kiln starts
	// another one.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// How long a finished Job is kept, with its logs and its stored result, in seconds: an hour at least.
	// +optional
	// +default=3600
	// +kubebuilder:validation:Minimum=3600
	// +kubebuilder:validation:Maximum=2592000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// How many Jobs of successful renders are kept for each PackageRevision when the next one starts.
	// +optional
	// +default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	SuccessfulJobsHistoryLimit *int32 `json:"successfulJobsHistoryLimit,omitempty"`

	// How many Jobs of failed renders are kept for each PackageRevision when the next one starts.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=20
	FailedJobsHistoryLimit *int32 `json:"failedJobsHistoryLimit,omitempty"`
}

// RenderResources are the compute resources of the render's container.
type RenderResources struct {
	// The least the container gets, by resource name.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	Requests corev1.ResourceList `json:"requests,omitempty"`

	// The most the container gets, by resource name.
	// +optional
	// +kubebuilder:validation:MaxProperties=8
	Limits corev1.ResourceList `json:"limits,omitempty"`
}
