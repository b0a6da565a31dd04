package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Labels and annotations that Kiln puts on the objects it makes. They are part of the API: people select by them,
// and the renderer and the controller agree on them.
const (
	// LabelComponent says what an object is for: one of the Component values.
	LabelComponent = "kiln.dev/component"
	// LabelPackage is spec.packageName of the revision that is rendered.
	LabelPackage = "kiln.dev/package"
	// LabelRevision is the name of the PackageRevision that is rendered; a name that does not fit a label is cut and
	// ends in a hash.
	LabelRevision = "kiln.dev/revision"
	// LabelRevisionUID is the UID of that PackageRevision.
	LabelRevisionUID = "kiln.dev/revision-uid"
	// LabelInputDigest is the first 16 hex digits of the digest of the contents that are rendered.
	LabelInputDigest = "kiln.dev/input-digest"
	// LabelJobUID is the UID of the Job that a snapshot or a result belongs to.
	LabelJobUID = "kiln.dev/job-uid"
	// LabelPodUID is the UID of the pod that wrote a result.
	LabelPodUID = "kiln.dev/pod-uid"

	// AnnotationInputDigest is the whole digest of the contents that are rendered: 64 hex digits.
	AnnotationInputDigest = "kiln.dev/input-digest"
	// AnnotationOutputDigest is the whole digest of the contents that a result leads to.
	AnnotationOutputDigest = "kiln.dev/output-digest"
	// AnnotationRenderRequestedAt on a PackageRevision asks for a render when its value changes, as
	// kubectl.kubernetes.io/restartedAt does for a Deployment. Any text will do; a time is customary.
	AnnotationRenderRequestedAt = "kiln.dev/render-requested-at"
)

// Values of LabelComponent.
const (
	// ComponentRender is a Job that renders, and its pods.
	ComponentRender = "render"
	// ComponentSnapshot is a ConfigMap with the contents that one render sees.
	ComponentSnapshot = "snapshot"
	// ComponentResult is a ConfigMap with the index of a result: written last, so that its existence says that the
	// result is complete.
	ComponentResult = "result"
	// ComponentResultChunk is a ConfigMap with a part of a result.
	ComponentResultChunk = "result-chunk"
)

// maxLabelValue is what Kubernetes allows.
const maxLabelValue = 63

// LabelValue is a text as the value of a label: one that is no valid value, or too long for one, has its invalid
// characters replaced, is cut, and ends in a hash of the whole text.
func LabelValue(text string) string {
	if len(validation.IsValidLabelValue(text)) == 0 {
		return text
	}
	hash := sha256.Sum256([]byte(text))
	suffix := "-" + hex.EncodeToString(hash[:4])
	kept := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '-'
	}, text)
	kept = kept[:min(len(kept), maxLabelValue-len(suffix))]
	return strings.Trim(strings.TrimLeft(kept, "-._")+suffix, "-._")
}
