package renderer

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kiln-dev/kiln/renderer-image/bundle"
)

const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web\n"

func labelled(function string) map[string]string {
	return map[string]string{
		"Kptfile": "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata:\n  name: web\npipeline:\n  mutators:\n  - image: " +
			function + "\n    name: mark\n    configMap:\n      tier: front\n",
		"deploy.yaml": deployment,
		"README.md":   "# Web\n",
	}
}

const setLabels = "ghcr.io/kptdev/krm-functions-catalog/set-labels:v0.2.0"

// snapshotOf mounts a snapshot as the kubelet would.
func snapshotOf(t *testing.T, files map[string]string) Config {
	t.Helper()
	g := NewWithT(t)
	job := bundle.Job{Namespace: "team", Name: "web-1", UID: types.UID("job-uid")}
	configMap, err := bundle.SnapshotConfigMap(job, bundle.Digest(files), files)
	g.Expect(err).NotTo(HaveOccurred())
	dir := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(dir, bundle.SnapshotKey), configMap.BinaryData[bundle.SnapshotKey], 0o600)).To(Succeed())
	return Config{
		SnapshotDir: dir,
		InputDigest: bundle.Digest(files),
		Package:     "web",
		Revision:    "web-v1",
		Publisher:   bundle.Publisher{Job: job, Pod: "web-1-abcde", UID: "pod-uid"},
		Version:     "test",
	}
}

// shelf keeps what is published, and refuses what is to be refused.
type shelf struct {
	results []*bundle.Result
	refuse  []error
}

func (s *shelf) publish(_ context.Context, _ bundle.Publisher, result *bundle.Result) error {
	if len(s.refuse) > 0 {
		err := s.refuse[0]
		s.refuse = s.refuse[1:]
		return err
	}
	s.results = append(s.results, result)
	return nil
}

func TestASuccessfulRenderPublishesItsResult(t *testing.T) {
	g := NewWithT(t)
	files := labelled(setLabels)
	var log bytes.Buffer
	var published shelf
	g.Expect(Run(t.Context(), snapshotOf(t, files), published.publish, &log)).To(Equal(bundle.ExitRendered), log.String())

	g.Expect(published.results).To(HaveLen(1))
	result := published.results[0]
	g.Expect(result.Succeeded).To(BeTrue())
	g.Expect(result.RendererVersion).To(Equal("test"))
	g.Expect(result.Steps).To(HaveLen(1))
	g.Expect(result.Steps[0]).To(And(HaveField("Package", "."), HaveField("Phase", "mutate"), HaveField("Name", "mark"), HaveField("Image", setLabels), HaveField("ExitCode", 0)))
	output, err := result.Apply(files)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(output["deploy.yaml"]).To(ContainSubstring("tier: front"))
	g.Expect(output["README.md"]).To(Equal(files["README.md"]))
	g.Expect(result.Changed).NotTo(HaveKey("README.md"))

	g.Expect(log.String()).To(And(
		ContainSubstring("Rendering package web, revision web-v1: 3 files, contents "+bundle.Digest(files)[:12]),
		ContainSubstring("[.] mutate mark ("+setLabels+"): ok"),
		ContainSubstring("\nchanged deploy.yaml\n"),
		ContainSubstring("\nPublished as ConfigMap kiln-result-pod-uid\n"),
		ContainSubstring("contents "+result.OutputDigest[:12]),
	))
}

func TestAFailureOfThePackageIsAResult(t *testing.T) {
	conflict := labelled(setLabels)
	conflict["deploy.yaml/more.yaml"] = deployment
	for name, test := range map[string]struct {
		files  map[string]string
		refuse []error
		reason string
		says   string
	}{
		"a function that is not there": {labelled("example.com/none:v1"), nil, "FunctionNotFound", "example.com/none:v1"},
		"no Kptfile":                   {map[string]string{"deploy.yaml": deployment}, nil, "InvalidPackage", "Kptfile"},
		"a file where a folder is":     {conflict, nil, "InvalidPackage", `"deploy.yaml/more.yaml" needs a folder`},
		"a result that does not fit":   {labelled(setLabels), []error{bundle.ErrTooLarge}, "ResultTooLarge", "Split the package"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var log bytes.Buffer
			published := shelf{refuse: test.refuse}
			g.Expect(Run(t.Context(), snapshotOf(t, test.files), published.publish, &log)).To(Equal(bundle.ExitRenderFailed), log.String())
			g.Expect(published.results).To(HaveLen(1))
			result := published.results[0]
			g.Expect(result.Succeeded).To(BeFalse())
			g.Expect(result.FailureReason).To(Equal(test.reason))
			g.Expect(result.FailureMessage).To(ContainSubstring(test.says))
			g.Expect(result.Apply(test.files)).To(Equal(test.files), "a failure changes no file")
			g.Expect(log.String()).To(ContainSubstring("Failed: " + test.reason + ": "))
		})
	}
}

func TestARenderThatCannotBeDonePublishesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		spoil  func(*Config)
		refuse []error
		says   string
	}{
		"there is no snapshot":             {func(c *Config) { c.SnapshotDir = filepath.Join(c.SnapshotDir, "none") }, nil, "read the snapshot"},
		"it is the snapshot of other ones": {func(c *Config) { c.InputDigest = bundle.Digest(nil) }, nil, "its digest is"},
		"the snapshot is damaged": {func(c *Config) {
			_ = os.WriteFile(filepath.Join(c.SnapshotDir, bundle.SnapshotKey), []byte("x"), 0o600)
		}, nil, "damaged"},
		"the API server is out of reach": {func(*Config) {}, []error{errors.New("connection refused")}, "could not be published: connection refused"},
		"not even the failure fits":      {func(*Config) {}, []error{bundle.ErrTooLarge, bundle.ErrTooLarge}, "could not be published"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			config := snapshotOf(t, labelled(setLabels))
			test.spoil(&config)
			var log bytes.Buffer
			published := shelf{refuse: test.refuse}
			g.Expect(Run(t.Context(), config, published.publish, &log)).To(Equal(bundle.ExitUnable))
			g.Expect(log.String()).To(ContainSubstring(test.says))
			g.Expect(published.results).To(BeEmpty())
		})
	}
}

func TestACancelledRenderPublishesNothing(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var published shelf
	g.Expect(Run(ctx, snapshotOf(t, labelled(setLabels)), published.publish, &bytes.Buffer{})).To(Equal(bundle.ExitCancelled))
	g.Expect(published.results).To(BeEmpty())
}

func TestAResultThatIsPublishedCountsThoughTheRenderIsCancelled(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	publish := func(context.Context, bundle.Publisher, *bundle.Result) error {
		cancel()
		return nil
	}
	g.Expect(Run(ctx, snapshotOf(t, labelled(setLabels)), publish, &bytes.Buffer{})).To(Equal(bundle.ExitRendered))

	ctx, cancel = context.WithCancel(t.Context())
	publish = func(ctx context.Context, _ bundle.Publisher, _ *bundle.Result) error {
		cancel()
		return ctx.Err()
	}
	g.Expect(Run(ctx, snapshotOf(t, labelled(setLabels)), publish, &bytes.Buffer{})).To(Equal(bundle.ExitCancelled))
}
