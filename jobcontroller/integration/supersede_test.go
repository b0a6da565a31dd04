package integration

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	batchv1 "k8s.io/api/batch/v1"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// rendererProcesses are the processes of this machine that render for a Job.
func rendererProcesses(job string) []string {
	environs, _ := filepath.Glob("/proc/[0-9]*/environ")
	var found []string
	for _, path := range environs {
		environ, err := os.ReadFile(path)
		if err == nil && strings.Contains("\x00"+string(environ), "\x00KILN_JOB_NAME="+job+"\x00") {
			found = append(found, filepath.Base(filepath.Dir(path)))
		}
	}
	return found
}

func TestASecondEditCancelsTheFirstRender(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "web", busyFiles("first")))
	first := waitRunning(t, rev)
	g.Eventually(func() []string { return rendererProcesses(first) }).WithTimeout(patience).ShouldNot(BeEmpty())

	edit(t, rev, "cm.yaml", configMap("cm", "second"))
	edited := time.Now()
	g.Eventually(func() []string { return rendererProcesses(first) }).WithTimeout(patience).WithPolling(pollInterval).Should(BeEmpty())
	t.Logf("the first render's process was gone %d ms after the edit", time.Since(edited).Milliseconds())

	done := waitRendered(t, rev)
	g.Expect(text(done, "cm.yaml")).To(And(ContainSubstring("second"), ContainSubstring("namespace: slow")))
	g.Expect(done.Status.Render.Superseded).To(BeEquivalentTo(1))
	g.Expect(done.Status.Render.JobName).NotTo(Equal(first))
	err := admin.Get(t.Context(), types.NamespacedName{Namespace: rev.Namespace, Name: first}, &batchv1.Job{})
	g.Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the superseded Job is deleted, but: %v", err)
	g.Eventually(func() string { return kubectl(t, rev.Namespace, "describe", "pkgrev", rev.Name) }).
		WithTimeout(patience).Should(ContainSubstring("RenderSuperseded"))
}

func TestTheLastOfManyQuickEditsIsTheOneThatIsRendered(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "0")}))
	for _, value := range strings.Fields("a b c d e f g h i j k l m n o p q r s t u v w x y last") {
		edit(t, rev, "cm.yaml", configMap("cm", value))
	}
	done := waitRendered(t, rev)
	g.Expect(text(done, "cm.yaml")).To(And(ContainSubstring(`"last"`), ContainSubstring("namespace: shop")))
	t.Logf("26 edits, %d renders superseded", done.Status.Render.Superseded)
}

func TestTwoEditsWithoutAPauseCountASupersededRender(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, sleepy(namespace(t), "web", "0"))
	first := waitRunning(t, rev)
	edit(t, rev, "cm.yaml", configMap("cm", "1"))
	g.Eventually(func(g Gomega) {
		jobs, err := jobsOf(t.Context(), rev)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(jobs).To(HaveLen(1))
		g.Expect(jobs[0].Name).NotTo(Equal(first))
	}).WithTimeout(patience).WithPolling(time.Millisecond).Should(Succeed())
	// The second render's Job is there; the status may not say so yet, and this edit may keep it from ever saying so.
	edit(t, rev, "cm.yaml", configMap("cm", "2"))
	done := waitRendered(t, rev)
	g.Expect(text(done, "cm.yaml")).To(ContainSubstring(`"2"`))
	g.Expect(done.Status.Render.Superseded).To(BeEquivalentTo(2))
}

func TestContentsThatReturnToTheLastOutputCancelTheRender(t *testing.T) {
	g := NewWithT(t)
	rev := create(t, revision(namespace(t), "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}))
	rendered := waitRendered(t, rev)

	slow := busyFiles("2")
	patch := rendered.DeepCopy()
	for path, text := range slow {
		patch.Spec.Resources[path] = kiln.FileText(text)
	}
	g.Expect(admin.Update(t.Context(), patch)).To(Succeed())
	job := waitRunning(t, rev)

	back, err := get(t.Context(), rev)
	g.Expect(err).NotTo(HaveOccurred())
	back.Spec.Resources = rendered.Spec.Resources
	g.Expect(admin.Update(t.Context(), back)).To(Succeed())
	done := waitRendered(t, rev)
	g.Expect(done.Spec.Resources).To(Equal(rendered.Spec.Resources))
	g.Expect(done.Status.Render.Superseded).To(BeEquivalentTo(1))
	g.Eventually(func() []string { return rendererProcesses(job) }).WithTimeout(patience).Should(BeEmpty())
}

func TestASuspendedDraftWaits(t *testing.T) {
	rev := revision(namespace(t), "web", map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")})
	suspend := true
	rev.Spec.Suspend = &suspend
	create(t, rev)
	waitFor(t, rev, ContainElements("RenderFinished=False/Suspended", "Reconciling=True/Suspended"))
	kubectl(t, rev.Namespace, "patch", "pkgrev", "web", "--type=merge", "-p", `{"spec":{"suspend":false}}`)
	waitRendered(t, rev)
}

// kill kills a process by the name of its folder in /proc.
func kill(pid string) {
	if n, err := strconv.Atoi(pid); err == nil {
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
}
