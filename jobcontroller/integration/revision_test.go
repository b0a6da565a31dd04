package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// pollInterval is how often a wait looks again.
const pollInterval = 20 * time.Millisecond

// kptfile is a Kptfile with the mutators given, one a line in YAML's flow style.
func kptfile(mutators ...string) string {
	text := "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: pkg\n"
	if len(mutators) == 0 {
		return text
	}
	text += "pipeline:\n  mutators:\n"
	for _, m := range mutators {
		text += "  - " + m + "\n"
	}
	return text
}

func setNamespace(name string) string {
	return fmt.Sprintf("{image: set-namespace:v0.4.1, configMap: {namespace: %s}}", name)
}

// configMap is a resource to render.
func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  value: %q\n", name, value)
}

// busyFiles are a package whose render keeps a processor busy for some seconds before it changes anything.
func busyFiles(value string) map[string]string {
	return map[string]string{
		"Kptfile": kptfile("{image: starlark:v0.5.0, configPath: busy.yaml}", setNamespace("slow")),
		"busy.yaml": `apiVersion: fn.kpt.dev/v1alpha1
kind: StarlarkRun
metadata:
  name: busy
  annotations:
    config.kubernetes.io/local-config: "true"
source: |
  def work():
    for i in range(40):
      sorted(range(300000, 0, -1))
  work()
`,
		"cm.yaml": configMap("cm", value),
	}
}

// sleepy is a revision whose renders sleep before they render; see rendererImage.
func sleepy(namespace, name, value string) *kiln.PackageRevision {
	rev := revision(namespace, name, map[string]string{"Kptfile": kptfile(setNamespace("slow")), "cm.yaml": configMap("cm", value)})
	rev.Spec.PackageName = "sleepy-" + name
	return rev
}

func revision(namespace, name string, files map[string]string) *kiln.PackageRevision {
	rev := &kiln.PackageRevision{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	rev.Spec.PackageName = "pkg-" + name
	rev.Spec.WorkspaceName = "v1"
	rev.Spec.Resources = map[string]kiln.FileText{}
	for path, text := range files {
		rev.Spec.Resources[path] = kiln.FileText(text)
	}
	return rev
}

func create(t *testing.T, rev *kiln.PackageRevision) *kiln.PackageRevision {
	t.Helper()
	NewWithT(t).Expect(admin.Create(t.Context(), rev)).To(Succeed())
	return rev
}

// edit sets one file, as kubectl patch does.
func edit(t *testing.T, rev *kiln.PackageRevision, path, text string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"resources": map[string]string{path: text}}})
	g := NewWithT(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(admin.Patch(t.Context(), rev, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

func get(ctx context.Context, rev *kiln.PackageRevision) (*kiln.PackageRevision, error) {
	fresh := &kiln.PackageRevision{}
	err := admin.Get(ctx, client.ObjectKeyFromObject(rev), fresh)
	return fresh, err
}

// conditions are a revision's, as TYPE=STATUS/REASON; one that speaks of an earlier generation is marked.
func conditions(rev *kiln.PackageRevision) []string {
	var said []string
	for _, c := range rev.Status.Conditions {
		text := fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason)
		if c.ObservedGeneration != rev.Generation {
			text += " (stale)"
		}
		said = append(said, text)
	}
	return said
}

// waitRendered waits until the contents, as they are now, are rendered.
func waitRendered(t *testing.T, rev *kiln.PackageRevision) *kiln.PackageRevision {
	t.Helper()
	return waitFor(t, rev, ContainElements("RenderFinished=True/Finished", "Rendered=True/RenderSuccess", "Ready=True/RenderSuccess"))
}

// waitFailed waits until the render of the contents, as they are now, has failed for the reason given.
func waitFailed(t *testing.T, rev *kiln.PackageRevision, reason string) *kiln.PackageRevision {
	t.Helper()
	return waitFor(t, rev, ContainElements("RenderFinished=True/Finished", "Rendered=False/"+reason, "Stalled=True/"+reason))
}

func waitFor(t *testing.T, rev *kiln.PackageRevision, matcher gomegatypes.GomegaMatcher) *kiln.PackageRevision {
	t.Helper()
	var fresh *kiln.PackageRevision
	NewWithT(t).Eventually(func(g Gomega) {
		var err error
		fresh, err = get(t.Context(), rev)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(conditions(fresh)).To(matcher)
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	return fresh
}

// waitRunning waits until a render of the contents, as they are now, runs, and returns its Job's name.
func waitRunning(t *testing.T, rev *kiln.PackageRevision) string {
	t.Helper()
	fresh := waitFor(t, rev, ContainElements("RenderFinished=False/Running", "Reconciling=True/Running"))
	NewWithT(t).Expect(meta.FindStatusCondition(fresh.Status.Conditions, kiln.ConditionRendered)).To(BeNil())
	return fresh.Status.Render.JobName
}

// jobsOf are the Jobs of a revision that are not being deleted.
func jobsOf(ctx context.Context, rev *kiln.PackageRevision) ([]batchv1.Job, error) {
	jobs := &batchv1.JobList{}
	if err := admin.List(ctx, jobs, client.InNamespace(rev.Namespace), client.MatchingLabels{kiln.LabelRevisionUID: string(rev.UID)}); err != nil {
		return nil, err
	}
	var live []batchv1.Job
	for _, job := range jobs.Items {
		if job.DeletionTimestamp.IsZero() {
			live = append(live, job)
		}
	}
	return live, nil
}

// text is one file of a revision.
func text(rev *kiln.PackageRevision, path string) string { return string(rev.Spec.Resources[path]) }

func files(rev *kiln.PackageRevision) map[string]string {
	texts := map[string]string{}
	for path, text := range rev.Spec.Resources {
		texts[path] = string(text)
	}
	return texts
}

// packageConditions are those of the root Kptfile as the status mirrors them, as TYPE=STATUS/REASON.
func packageConditions(rev *kiln.PackageRevision) []string {
	var said []string
	for _, c := range rev.Status.PackageConditions {
		said = append(said, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return said
}

func messageOf(rev *kiln.PackageRevision, conditionType string) string {
	c := meta.FindStatusCondition(rev.Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return c.Message
}

// waitJobsOver waits until no Job of the revision is active.
func waitJobsOver(t *testing.T, rev *kiln.PackageRevision) {
	t.Helper()
	NewWithT(t).Eventually(func(g Gomega) {
		jobs, err := jobsOf(t.Context(), rev)
		g.Expect(err).NotTo(HaveOccurred())
		for _, job := range jobs {
			g.Expect(job.Status.CompletionTime).NotTo(BeNil(), job.Name)
		}
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
}
