package integration

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/renderer-image/bundle"
)

func TestAnEditIsRenderedByAJob(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "web", map[string]string{
		"Kptfile": kptfile(setNamespace("shop")),
		"cm.yaml": configMap("cm", "1") + "# kept\n",
		"notes":   "no resource",
	}))

	done := waitRendered(t, rev)
	g.Expect(text(done, "cm.yaml")).To(ContainSubstring("namespace: shop"))
	g.Expect(text(done, "cm.yaml")).To(ContainSubstring("# kept"))
	g.Expect(text(done, "notes")).To(Equal("no resource"))

	digest := bundle.Digest(files(done))
	g.Expect(text(done, "Kptfile")).To(ContainSubstring(digest), "the Kptfile's conditions say of which contents they speak")
	g.Expect(packageConditions(done)).To(ConsistOf("RenderFinished=True/Finished", "Rendered=True/RenderSuccess"))

	at := done.Status.Render
	g.Expect(at.Phase).To(Equal(kiln.PhaseSucceeded))
	g.Expect(at.InputDigest).NotTo(Equal(digest))
	g.Expect(at.OutputDigest).To(Equal(digest))
	g.Expect(at.Attempt).To(BeEquivalentTo(1))
	g.Expect(at.Superseded).To(BeZero())
	g.Expect(at.Steps).To(HaveLen(1))
	g.Expect(at.Steps[0].Function).To(ContainSubstring("set-namespace"))
	g.Expect(at.FinishTime.Time).To(BeTemporally(">", at.StartTime.Time))

	jobs, err := jobsOf(t.Context(), rev)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(jobs).To(HaveLen(1))
	job := jobs[0]
	g.Expect(job.Name).To(Equal(at.JobName))
	g.Expect(len(job.Name)).To(BeNumerically("<=", 57))
	g.Expect(job.Labels).To(HaveKeyWithValue(kiln.LabelPackage, "pkg-web"))
	g.Expect(job.Labels).To(HaveKeyWithValue(kiln.LabelRevision, "web"))
	g.Expect(job.Labels).To(HaveKeyWithValue(kiln.LabelInputDigest, at.InputDigest[:16]))
	g.Expect(metav1.IsControlledBy(&job, done)).To(BeTrue())
	for name, quantity := range map[corev1.ResourceName]string{corev1.ResourceCPU: "100m", corev1.ResourceMemory: "64Mi"} {
		request := job.Spec.Template.Spec.Containers[0].Resources.Requests[name]
		g.Expect(request.String()).To(Equal(quantity))
	}
	g.Eventually(func(g Gomega) {
		g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(&job), &job)).To(Succeed())
		g.Expect(job.Status.Conditions).To(ContainElement(HaveField("Type", batchv1.JobComplete)))
	}).WithTimeout(patience).Should(Succeed())

	logs := kubectl(t, rev.Namespace, "logs", "job/"+job.Name)
	g.Expect(logs).To(ContainSubstring("set-namespace"))
	described := kubectl(t, rev.Namespace, "describe", "pkgrev", rev.Name)
	g.Expect(described).To(ContainSubstring("RenderStarted"))
	g.Eventually(func() string { return kubectl(t, rev.Namespace, "describe", "pkgrev", rev.Name) }).
		WithTimeout(patience).Should(ContainSubstring("RenderSucceeded"))
	table := kubectl(t, rev.Namespace, "get", "pkgrev")
	g.Expect(strings.Fields(strings.Split(table, "\n")[0])).To(Equal([]string{"NAME", "PACKAGE", "LIFECYCLE", "PHASE", "REASON", "JOB", "AGE"}))
	g.Expect(table).To(MatchRegexp(`web\s+pkg-web\s+Draft\s+Succeeded\s+RenderSuccess\s+` + job.Name))
}

func TestRenderedContentsAreNotRenderedAgain(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "web", map[string]string{"Kptfile": kptfile(setNamespace("a")), "cm.yaml": configMap("cm", "1")}))
	first := waitRendered(t, rev).Status.Render.JobName

	kubectl(t, rev.Namespace, "label", "pkgrev", "web", "colour=blue")
	kubectl(t, rev.Namespace, "patch", "pkgrev", "web", "--type=merge", "-p", `{"spec":{"readinessGates":[{"conditionType":"Rendered"}]}}`)
	done := waitRendered(t, rev)
	g.Expect(done.Generation).To(BeNumerically(">", 2))
	g.Expect(done.Status.Render.JobName).To(Equal(first))
}

func TestAFailingFunctionLeavesTheFilesAsTheyWere(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "bad", map[string]string{
		"Kptfile": kptfile(setNamespace("shop")) + "  validators:\n  - {image: starlark:v0.5.0, configPath: check.yaml}\n",
		"cm.yaml": configMap("cm", "1"),
		"check.yaml": `apiVersion: fn.kpt.dev/v1alpha1
kind: StarlarkRun
metadata:
  name: check
source: |
  fail("the value may not be 1")
`,
	}))
	done := waitFailed(t, rev, "FunctionFailed")
	g.Expect(messageOf(done, kiln.ConditionRendered)).To(ContainSubstring("the value may not be 1"))
	g.Expect(text(done, "cm.yaml")).To(Equal(configMap("cm", "1")))
	g.Expect(packageConditions(done)).To(ConsistOf("RenderFinished=True/Finished", "Rendered=False/RenderFailed"))
	g.Expect(done.Status.Render.Phase).To(Equal(kiln.PhaseFailed))
	g.Eventually(func() string { return kubectl(t, rev.Namespace, "describe", "pkgrev", rev.Name) }).
		WithTimeout(patience).Should(ContainSubstring("RenderFailed"))

	jobs, err := jobsOf(t.Context(), rev)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(jobs).To(HaveLen(1), "a failure of the package's is not tried again")

	edit(t, rev, "check.yaml", "apiVersion: fn.kpt.dev/v1alpha1\nkind: StarlarkRun\nmetadata:\n  name: check\nsource: |\n  pass\n")
	g.Expect(text(waitRendered(t, rev), "cm.yaml")).To(ContainSubstring("namespace: shop"))
}

func TestAFunctionThatIsNotBuiltInIsAFailureThatNamesIt(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "unknown", map[string]string{
		"Kptfile": kptfile("{image: example.test/fns/no-such-function:v1}"),
		"cm.yaml": configMap("cm", "1"),
	}))
	done := waitFor(t, rev, ContainElement(HavePrefix("Rendered=False/")))
	g.Expect(messageOf(done, kiln.ConditionRendered)).To(ContainSubstring("example.test/fns/no-such-function:v1"))
}

func TestContentsThatReturnToTheLastInputGetItsResultWithoutAJob(t *testing.T) {
	g := NewWithT(t)
	source := map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}
	rev := create(t, revision(namespace(t), "web", source))
	first := waitRendered(t, rev)

	edit(t, rev, "cm.yaml", source["cm.yaml"])
	g.Eventually(func(g Gomega) {
		now, err := get(t.Context(), rev)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(now.Status.Render.Replayed).To(BeEquivalentTo(1))
	}).WithTimeout(patience).Should(Succeed())
	replayed := waitRendered(t, rev)
	g.Expect(text(replayed, "cm.yaml")).To(ContainSubstring("namespace: shop"))
	g.Expect(replayed.Status.Render.JobName).To(Equal(first.Status.Render.JobName))
	jobs, err := jobsOf(t.Context(), rev)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(jobs).To(HaveLen(1))
}

func TestARenderCanBeAskedFor(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}))
	first := waitRendered(t, rev).Status.Render.JobName

	kubectl(t, rev.Namespace, "annotate", "pkgrev", "web", kiln.AnnotationRenderRequestedAt+"=2026-01-01T00:00:00Z")
	g.Eventually(func(g Gomega) {
		now, err := get(t.Context(), rev)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(now.Status.LastOutcome.Request).To(Equal("2026-01-01T00:00:00Z"))
		g.Expect(now.Status.Render.JobName).NotTo(Equal(first))
		g.Expect(conditions(now)).To(ContainElement("Rendered=True/RenderSuccess"))
	}).WithTimeout(patience).Should(Succeed())
}

func TestOthersConditionsInTheKptfileAreKept(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "web", map[string]string{
		"Kptfile": kptfile(setNamespace("shop")) + "status:\n  conditions:\n  - type: Reviewed # by hand\n    status: \"True\"\n    reason: LooksGood\n",
		"cm.yaml": configMap("cm", "1"),
	}))
	done := waitRendered(t, rev)
	g.Expect(text(done, "Kptfile")).To(ContainSubstring("- type: Reviewed # by hand"))
	g.Expect(packageConditions(done)).To(ConsistOf("Reviewed=True/LooksGood", "RenderFinished=True/Finished", "Rendered=True/RenderSuccess"))
}

func TestAKptfileThatClaimsToBeRenderedIsCorrectedWhenItsRenderStarts(t *testing.T) {
	g := NewWithT(t)
	source := busyFiles("1")
	source["Kptfile"] += "status:\n  conditions:\n  - {type: Rendered, status: \"True\", reason: RenderSuccess}\n"
	rev := create(t, revision(namespace(t), "web", source))
	waitRunning(t, rev)
	now, err := get(t.Context(), rev)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(packageConditions(now)).To(ConsistOf("RenderFinished=False/Scheduled"))
	g.Expect(text(now, "Kptfile")).NotTo(ContainSubstring("RenderSuccess"))
}
