package renderer_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/bundle"
)

// These tests run the real program. There is no API server: what is published is for the integration tests to see.

func buildRenderer(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "kiln-renderer")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/kiln-renderer")
	output, err := build.CombinedOutput()
	NewWithT(t).Expect(err).NotTo(HaveOccurred(), "%s", output)
	return binary
}

// start begins a render of the files in a process that finds no cluster.
func start(t *testing.T, binary string, files map[string]string, env ...string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	g := NewWithT(t)
	dir := t.TempDir()
	snapshot, err := bundle.SnapshotConfigMap(bundle.Job{}, bundle.Digest(files), files)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, bundle.SnapshotKey), snapshot.BinaryData[bundle.SnapshotKey], 0o600)).To(Succeed())
	cmd := exec.CommandContext(t.Context(), binary)
	cmd.Env = append([]string{
		bundle.EnvSnapshotDir + "=" + dir, bundle.EnvInputDigest + "=" + bundle.Digest(files),
		bundle.EnvPackage + "=web", bundle.EnvRevision + "=web-v1", bundle.EnvNamespace + "=team",
		bundle.EnvJobName + "=web-1", bundle.EnvJobUID + "=job-uid", bundle.EnvPodName + "=web-1-abcde", bundle.EnvPodUID + "=pod-uid",
	}, env...)
	output, err := cmd.StdoutPipe()
	g.Expect(err).NotTo(HaveOccurred())
	cmd.Stderr = cmd.Stdout
	g.Expect(cmd.Start()).To(Succeed())
	return cmd, bufio.NewReader(output)
}

func exitCode(t *testing.T, cmd *exec.Cmd, output io.Reader) (code int, log string) {
	t.Helper()
	g := NewWithT(t)
	text, err := io.ReadAll(output)
	g.Expect(err).NotTo(HaveOccurred())
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		g.Expect(err).NotTo(HaveOccurred())
	}
	return cmd.ProcessState.ExitCode(), string(text)
}

func packageWith(mutator string, more map[string]string) map[string]string {
	files := map[string]string{
		"Kptfile":  "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\npipeline:\n  mutators:\n  - " + mutator + "\n",
		"web.yaml": "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n",
	}
	for path, text := range more {
		files[path] = text
	}
	return files
}

func TestTheProgram(t *testing.T) {
	binary := buildRenderer(t)
	labels := packageWith("image: ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2.0\n    configMap: {tier: front}", nil)

	t.Run("exits with 20 when it finds no API server to publish to", func(t *testing.T) {
		g := NewWithT(t)
		cmd, output := start(t, binary, labels)
		code, log := exitCode(t, cmd, output)
		g.Expect(code).To(Equal(bundle.ExitUnable), log)
		g.Expect(log).To(And(ContainSubstring("changed web.yaml"), ContainSubstring("could not be published")))
	})

	t.Run("exits with 20 and says what is missing when a Job did not start it", func(t *testing.T) {
		g := NewWithT(t)
		cmd, output := start(t, binary, labels, bundle.EnvPodUID+"=")
		code, log := exitCode(t, cmd, output)
		g.Expect(code).To(Equal(bundle.ExitUnable), log)
		g.Expect(log).To(ContainSubstring("no " + bundle.EnvPodUID))
	})

	t.Run("exits with 143 when SIGTERM comes while a function runs, and publishes nothing", func(t *testing.T) {
		g := NewWithT(t)
		endless := packageWith("image: ghcr.io/kptdev/krm-functions-catalog/starlark:v0.5.0\n    configPath: run.yaml", map[string]string{
			"run.yaml": "apiVersion: fn.kpt.dev/v1alpha1\nkind: StarlarkRun\nmetadata:\n  name: endless\nsource: |\n  while True: pass\n",
		})
		cmd, output := start(t, binary, endless)
		first, err := output.ReadString('\n')
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(first).To(HavePrefix("Rendering package web"))
		g.Expect(cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		code, log := exitCode(t, cmd, output)
		g.Expect(code).To(Equal(bundle.ExitCancelled), log)
		g.Expect(strings.ToLower(log)).To(And(ContainSubstring("nothing is published"), Not(ContainSubstring("published as"))))
	})
}
