package bundle

// What the controller tells the renderer by its environment.
const (
	// EnvSnapshotDir is the folder where the snapshot's ConfigMap is mounted.
	EnvSnapshotDir = "KILN_SNAPSHOT_DIR"
	// EnvInputDigest is the digest of the contents in the snapshot.
	EnvInputDigest = "KILN_INPUT_DIGEST"
	// EnvPackage and EnvRevision say what is rendered, for the log.
	EnvPackage  = "KILN_PACKAGE"
	EnvRevision = "KILN_REVISION"
	// EnvNamespace, EnvJobName and EnvJobUID are the Job that the result will belong to.
	EnvNamespace = "KILN_NAMESPACE"
	EnvJobName   = "KILN_JOB_NAME"
	EnvJobUID    = "KILN_JOB_UID"
	// EnvPodName and EnvPodUID are the pod that publishes the result.
	EnvPodName = "KILN_POD_NAME"
	EnvPodUID  = "KILN_POD_UID"
)

// How the renderer exits.
const (
	// ExitRendered: the result of a successful render is published.
	ExitRendered = 0
	// ExitRenderFailed: the render failed for a reason that lies in the package, and the result that says so is published.
	// Trying again would not help: the Job's podFailurePolicy fails it at once.
	ExitRenderFailed = 10
	// ExitUnable: the snapshot could not be read or the result not be published. Another pod may fare better.
	ExitUnable = 20
	// ExitCancelled: SIGTERM ended the renderer, which has published nothing.
	ExitCancelled = 143
)
