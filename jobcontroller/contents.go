package jobcontroller

import (
	"encoding/json"
	"maps"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/renderer-image/bundle"
	"github.com/kiln-dev/kiln/renderer-image/kptfile"
)

// The cache keeps a summary of the contents under these paths in place of the files. No stored object can hold such
// paths: the CRD refuses control characters in them.
const (
	summaryDigest     = "\x00digest"
	summaryConditions = "\x00conditions"
)

// rootKptfile is the path of the root Kptfile in the contents.
const rootKptfile = "Kptfile"

// Bounds of what the status keeps of the Kptfile's conditions; they are those of the API.
const (
	maxPackageConditions = 32
	maxConditionType     = 316
	maxConditionText     = 1024
)

// StripContents is the transform of the PackageRevision cache: it replaces the files by their digest and the root
// Kptfile's conditions, so that ten thousand packages cost megabytes, and drops what else only repeats the files.
// It is idempotent and never fails.
var StripContents cache.TransformFunc = func(obj any) (any, error) {
	rev, ok := obj.(*kiln.PackageRevision)
	if !ok {
		return obj, nil
	}
	rev.ManagedFields = nil
	delete(rev.Annotations, "kubectl.kubernetes.io/last-applied-configuration")
	if _, done := rev.Spec.Resources[summaryDigest]; done {
		return rev, nil
	}
	files := filesOf(rev)
	rev.Spec.Resources = map[string]kiln.FileText{summaryDigest: kiln.FileText(bundle.Digest(files))}
	if text, ok := files[rootKptfile]; ok {
		if _, err := kptfile.Conditions(text); err == nil {
			conditions, _ := json.Marshal(packageConditions(text))
			rev.Spec.Resources[summaryConditions] = kiln.FileText(conditions)
		}
	}
	return rev, nil
}

// summary is what the cache knows of the contents.
type summary struct {
	digest string
	// conditions are those of the root Kptfile.
	conditions []kiln.PackageCondition
	// readable: there is a root Kptfile, and it can tell conditions.
	readable bool
}

func summaryOf(stripped *kiln.PackageRevision) summary {
	s := summary{digest: string(stripped.Spec.Resources[summaryDigest])}
	var text kiln.FileText
	if text, s.readable = stripped.Spec.Resources[summaryConditions]; s.readable {
		// The text was written by StripContents: it always parses.
		_ = json.Unmarshal([]byte(text), &s.conditions)
	}
	return s
}

func filesOf(rev *kiln.PackageRevision) map[string]string {
	files := make(map[string]string, len(rev.Spec.Resources))
	for path, text := range rev.Spec.Resources {
		files[path] = string(text)
	}
	return files
}

// packageConditions reads the conditions of a Kptfile as far as the API has room for them. A Kptfile that cannot be
// read has none: that it cannot be read is for the render to say.
func packageConditions(content string) []kiln.PackageCondition {
	found, err := kptfile.Conditions(content)
	if err != nil {
		return nil
	}
	var conditions []kiln.PackageCondition
	seen := map[string]bool{}
	for _, c := range found {
		if len(conditions) == maxPackageConditions {
			break
		}
		if c.Type == "" || len(c.Type) > maxConditionType || seen[c.Type] || !validStatus(c.Status) {
			continue
		}
		seen[c.Type] = true
		conditions = append(conditions, kiln.PackageCondition{
			Type:    c.Type,
			Status:  metav1.ConditionStatus(c.Status),
			Reason:  truncate(c.Reason, maxConditionText),
			Message: truncate(c.Message, maxConditionText),
		})
	}
	return conditions
}

// changesBetween is what turns before into after: texts to set, and nil for files to delete.
func changesBetween(before, after map[string]string) map[string]*string {
	changes := map[string]*string{}
	for path, text := range after {
		if old, ok := before[path]; !ok || old != text {
			changes[path] = &text
		}
	}
	for path := range before {
		if _, ok := after[path]; !ok {
			changes[path] = nil
		}
	}
	return changes
}

// withFile is files with one text replaced; files itself is left alone.
func withFile(files map[string]string, path, text string) map[string]string {
	changed := maps.Clone(files)
	changed[path] = text
	return changed
}

// characters is what the CRD counts against its limit of 1 MiB.
func characters(files map[string]string) int {
	total := 0
	for _, text := range files {
		total += utf8.RuneCountInString(text)
	}
	return total
}
