package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PackageRevision is one version of a configuration package: its files and its lifecycle. While it is a Draft, every
// change of its files is rendered in the background by a Job in its namespace, and the result is written back into
// spec.resources, unless the files have changed again in the meantime.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=pkgrev,categories=kiln
// +kubebuilder:printcolumn:name="Package",type=string,JSONPath=`.spec.packageName`
// +kubebuilder:printcolumn:name="Workspace",type=string,JSONPath=`.spec.workspaceName`,priority=1
// +kubebuilder:printcolumn:name="Lifecycle",type=string,JSONPath=`.spec.lifecycle`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.render.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Job",type=string,JSONPath=`.status.render.jobName`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.lifecycle`
// +kubebuilder:selectablefield:JSONPath=`.spec.packageName`
type PackageRevision struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the package contains and where in its lifecycle it is. Written by people and their tools; Kiln writes
	// rendered files into spec.resources.
	// +required
	Spec PackageRevisionSpec `json:"spec"`

	// What Kiln knows about the rendering of the package. Written by Kiln only.
	// +optional
	Status PackageRevisionStatus `json:"status,omitempty"`
}

// PackageRevisionList is a list of PackageRevisions.
//
// +kubebuilder:object:root=true
type PackageRevisionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PackageRevision `json:"items"`
}

// PackageRevisionSpec is what a package contains and where in its lifecycle it is.
type PackageRevisionSpec struct {
	// The name of the package this is a revision of. It cannot be changed.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f\x7f]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="packageName cannot be changed: create another PackageRevision"
	PackageName string `json:"packageName"`

	// The name that tells this revision from others of the same package while it is worked on. It cannot be changed.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="workspaceName cannot be changed: create another PackageRevision"
	WorkspaceName string `json:"workspaceName,omitempty"`

	// The repository that the package belongs to, for tools that keep packages in repositories. Kiln only carries it.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="repository cannot be changed: create another PackageRevision"
	Repository string `json:"repository,omitempty"`

	// Where the revision stands. A Draft is rendered after every change of its files; the others are left alone.
	// +optional
	// +default="Draft"
	Lifecycle Lifecycle `json:"lifecycle,omitempty"`

	// Conditions of the package (those under status.conditions of its root Kptfile) that must be True before it counts
	// as ready for publication.
	// +optional
	// +listType=map
	// +listMapKey=conditionType
	// +kubebuilder:validation:MaxItems=32
	ReadinessGates []ReadinessGate `json:"readinessGates,omitempty"`

	// The files of the package: slash-separated path, relative to the package's root, to text. The root Kptfile is at
	// "Kptfile". At most 5,000 files and 1 MiB of text in all, counted in characters, so that the object with its status
	// still fits what the API server stores.
	// +optional
	// +kubebuilder:validation:MaxProperties=5000
	// +kubebuilder:validation:XValidation:rule="self.all(path, path.size() > 0 && path.size() <= 512 && !path.startsWith('/') && !path.matches('(^|/)[.]{0,2}(/|$)') && !path.matches('[\\\\x00-\\\\x1f\\\\x7f]'))",message="a path must be relative and slash-separated, of 1 to 512 characters, without control characters and without empty, '.' or '..' segments"
	// +kubebuilder:validation:XValidation:rule="self.map(path, self[path].size()).sum() <= 1048576",message="the files must not hold more than 1048576 characters (1 MiB) of text in all: split the package"
	Resources map[string]FileText `json:"resources,omitempty"`

	// The RenderClass that says what the render's Job looks like and may use. Without it the class annotated as the
	// default one is taken, and without such a class Kiln's own defaults.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	RenderClassName *string `json:"renderClassName,omitempty"`

	// While true, changes of the files are not rendered. A render that runs already goes on.
	// +optional
	Suspend *bool `json:"suspend,omitempty"`
}

// FileText is the text of one file.
//
// +kubebuilder:validation:MaxLength=1048576
type FileText string

// Lifecycle is where a PackageRevision stands.
//
// +kubebuilder:validation:Enum=Draft;Proposed;Published;DeletionProposed
type Lifecycle string

// The lifecycle of a PackageRevision.
const (
	// LifecycleDraft is being worked on: its files may change and are rendered.
	LifecycleDraft Lifecycle = "Draft"
	// LifecycleProposed waits for approval.
	LifecycleProposed Lifecycle = "Proposed"
	// LifecyclePublished is approved.
	LifecyclePublished Lifecycle = "Published"
	// LifecycleDeletionProposed was published and waits for its deletion to be approved.
	LifecycleDeletionProposed Lifecycle = "DeletionProposed"
)

// ReadinessGate names a condition of the package.
type ReadinessGate struct {
	// The type of the condition.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	ConditionType string `json:"conditionType"`
}

// PackageRevisionStatus is what Kiln knows about the rendering of a package.
type PackageRevisionStatus struct {
	// The metadata.generation that this status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// RenderFinished is True when no render is scheduled or running for these files, and False with the reason while
	// one is. Rendered is True when the files are the output of a successful render, False with the reason when the last
	// render failed, and absent while a render is scheduled or running. Ready, Reconciling and Stalled say the same in
	// the words of kstatus.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The render that is waiting or running, or else the last one.
	// +optional
	Render *RenderStatus `json:"render,omitempty"`

	// What the last finished render came to. Files that return to its input get its result again without a new Job.
	// +optional
	LastOutcome *RenderOutcome `json:"lastOutcome,omitempty"`

	// The conditions under status.conditions of the root Kptfile, as they stand there. Readiness gates look at these.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	PackageConditions []PackageCondition `json:"packageConditions,omitempty"`
}

// RenderPhase says in one word what a render does.
//
// +kubebuilder:validation:Enum=Scheduled;Running;Succeeded;Failed
type RenderPhase string

// The phases of a render.
const (
	// PhaseScheduled waits for a Job; further edits are absorbed.
	PhaseScheduled RenderPhase = "Scheduled"
	// PhaseRunning has a Job.
	PhaseRunning RenderPhase = "Running"
	// PhaseSucceeded has been applied.
	PhaseSucceeded RenderPhase = "Succeeded"
	// PhaseFailed ended without a result that could be applied.
	PhaseFailed RenderPhase = "Failed"
)

// RenderStatus describes one render.
type RenderStatus struct {
	// What the render does.
	// +required
	Phase RenderPhase `json:"phase"`

	// The digest of the files that are rendered: SHA-256 as 64 hex digits, the root Kptfile's status left out.
	// +required
	// +kubebuilder:validation:MaxLength=64
	InputDigest string `json:"inputDigest"`

	// The digest of the rendered files.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	OutputDigest string `json:"outputDigest,omitempty"`

	// The value of the annotation kiln.dev/render-requested-at that this render answers.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Request string `json:"request,omitempty"`

	// The name of the render's Job, in the namespace of the PackageRevision.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	JobName string `json:"jobName,omitempty"`

	// The UID of the render's Job.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	JobUID string `json:"jobUID,omitempty"`

	// How many Jobs were started for these files: more than one after failures of the infrastructure.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`

	// When Kiln saw that the files need a render.
	// +optional
	ScheduledTime *metav1.MicroTime `json:"scheduledTime,omitempty"`

	// When the render's Job was created.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`

	// When the render was applied or found to have failed.
	// +optional
	FinishTime *metav1.MicroTime `json:"finishTime,omitempty"`

	// When the next Job will be tried, after a failure of the infrastructure.
	// +optional
	NextAttemptTime *metav1.MicroTime `json:"nextAttemptTime,omitempty"`

	// How many renders of this PackageRevision were cancelled, or their results dropped, because the files had changed.
	// +optional
	Superseded int64 `json:"superseded,omitempty"`

	// How many times a stored result was applied again, because the files had returned to its input.
	// +optional
	Replayed int64 `json:"replayed,omitempty"`

	// The steps of the pipeline, in the order they ran: the first 64. The full results are in the result's ConfigMap.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Steps []RenderStep `json:"steps,omitempty"`
}

// RenderStep is one function's run in a render.
type RenderStep struct {
	// The path of the package whose pipeline names the function; "." is the root package.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Package string `json:"package"`

	// The function's image, or the name it is given in the pipeline.
	// +required
	// +kubebuilder:validation:MaxLength=512
	Function string `json:"function"`

	// The function's exit code: 0 when it succeeded.
	// +required
	ExitCode int32 `json:"exitCode"`

	// How long the function ran, in milliseconds.
	// +optional
	DurationMilliseconds int64 `json:"durationMilliseconds,omitempty"`

	// How many results of severity error the function reported.
	// +optional
	Errors int32 `json:"errors,omitempty"`

	// How many results of severity warning the function reported.
	// +optional
	Warnings int32 `json:"warnings,omitempty"`

	// How many results of severity info the function reported.
	// +optional
	Infos int32 `json:"infos,omitempty"`

	// The first messages of the function, each cut to 256 characters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:items:MaxLength=256
	Messages []string `json:"messages,omitempty"`
}

// RenderOutcome is what a finished render came to.
type RenderOutcome struct {
	// Whether the render succeeded.
	// +required
	Succeeded bool `json:"succeeded"`

	// Why: RenderSuccess, or the class of the failure.
	// +required
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`

	// The failure in words.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`

	// The digest of the files that were rendered.
	// +required
	// +kubebuilder:validation:MaxLength=64
	InputDigest string `json:"inputDigest"`

	// The digest of the files that came out and were applied. Empty when nothing was applied.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	OutputDigest string `json:"outputDigest,omitempty"`

	// The value of the annotation kiln.dev/render-requested-at that was answered.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Request string `json:"request,omitempty"`

	// The Job that rendered. While it exists its result does, too.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	JobName string `json:"jobName,omitempty"`

	// The UID of that Job.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	JobUID string `json:"jobUID,omitempty"`
}

// PackageCondition is a condition of the package, as its root Kptfile has it.
type PackageCondition struct {
	// The type of the condition.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`

	// True, False or Unknown.
	// +required
	// +kubebuilder:validation:Enum="True";"False";Unknown
	Status metav1.ConditionStatus `json:"status"`

	// Why, in one word.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// Why, in words: cut to 1024 characters.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Condition types of a PackageRevision.
const (
	// ConditionRenderFinished is True when no render is scheduled or running for the contents.
	ConditionRenderFinished = "RenderFinished"
	// ConditionRendered is True when the contents are the output of a successful render.
	ConditionRendered = "Rendered"
	// ConditionReady is kstatus': True when there is nothing left to do and nothing wrong.
	ConditionReady = "Ready"
	// ConditionReconciling is kstatus': True while a render is scheduled or running.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is kstatus': True when only a change of the contents can help.
	ConditionStalled = "Stalled"
)

// Reasons of the conditions, and of RenderOutcome.
const (
	// ReasonFinished: no render is scheduled or running.
	ReasonFinished = "Finished"
	// ReasonScheduled: a render waits to be started.
	ReasonScheduled = "Scheduled"
	// ReasonRunning: the render's Job exists.
	ReasonRunning = "Running"
	// ReasonSuspended: spec.suspend holds the render back.
	ReasonSuspended = "Suspended"
	// ReasonQuotaExceeded: a ResourceQuota refuses the render's Job.
	ReasonQuotaExceeded = "QuotaExceeded"
	// ReasonRenderClassNotFound: spec.renderClassName names a RenderClass that does not exist.
	ReasonRenderClassNotFound = "RenderClassNotFound"
	// ReasonRetrying: the infrastructure failed; another attempt is due at status.render.nextAttemptTime.
	ReasonRetrying = "Retrying"
	// ReasonJobNameTaken: an object that is not Kiln's has the name of the render's Job or snapshot.
	ReasonJobNameTaken = "JobNameTaken"
	// ReasonIdentityInvalid: the identity that the renderer publishes with, in the namespace, is not the one that Kiln made.
	ReasonIdentityInvalid = "RendererIdentityInvalid"
	// ReasonNotDraft: contents that were not rendered are not rendered any more, since the lifecycle is past Draft.
	ReasonNotDraft = "NotDraft"
	// ReasonDeleting: the PackageRevision is being deleted.
	ReasonDeleting = "Deleting"
	// ReasonRenderSuccess: the contents are the output of a successful render.
	ReasonRenderSuccess = "RenderSuccess"
	// ReasonRenderFailed: a failure that has no class of its own.
	ReasonRenderFailed = "RenderFailed"
	// ReasonDeadlineExceeded: the render took longer than its class allows.
	ReasonDeadlineExceeded = "DeadlineExceeded"
	// ReasonResultTooLarge: the rendered contents do not fit the API server.
	ReasonResultTooLarge = "ResultTooLarge"
)
