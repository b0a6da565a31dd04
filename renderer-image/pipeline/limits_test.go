package pipeline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/kiln-dev/kiln/renderer-image/pipeline"
)

// nested is a package with as many packages below it, one in the other.
func nested(levels int) map[string]string {
	files := map[string]string{"Kptfile": plainKptfile}
	for i := 1; i <= levels; i++ {
		files[strings.Repeat("a/", i)+"Kptfile"] = plainKptfile
	}
	return files
}

func withFunctions(count int) map[string]string {
	half := strings.Repeat("  - image: set-labels\n    configMap: {a: b}\n", count/2)
	return map[string]string{
		"Kptfile":     plainKptfile + "pipeline:\n  mutators:\n" + half,
		"sub/Kptfile": plainKptfile + "pipeline:\n  validators:\n" + half,
	}
}

func withFiles(count int) map[string]string {
	files := map[string]string{"Kptfile": plainKptfile}
	for i := range count - 1 {
		files[fmt.Sprintf("%d.txt", i)] = ""
	}
	return files
}

func withResources(count int) map[string]string {
	return map[string]string{"Kptfile": plainKptfile, "a.yaml": strings.Repeat(configMap+"---\n", count-1)}
}

func withStarlark(source string) map[string]string {
	return map[string]string{
		"Kptfile": plainKptfile + "pipeline:\n  mutators:\n  - image: starlark\n    configMap:\n      source: '" + source + "'\n",
	}
}

// TestDefaultLimits has the numbers that docs/concepts/contents-and-digest.md tells.
func TestDefaultLimits(t *testing.T) {
	for name, test := range map[string]struct {
		within, beyond map[string]string
		class          pipeline.Class
		says           []string
	}{
		"10,000 resources": {withResources(10_000), withResources(10_001), pipeline.TooLarge, []string{"10001 resources", "at most 10000"}},
		"20,000 files":     {withFiles(20_000), withFiles(20_001), pipeline.TooLarge, []string{"20001 files", "at most 20000"}},
		"500 functions":    {withFunctions(500), withFunctions(502), pipeline.TooLarge, []string{"502 functions", "at most 500"}},
		"32 packages deep": {nested(31), nested(32), pipeline.TooLarge, []string{strings.Repeat("a/", 32) + "Kptfile", "32 deep"}},
		"16 MiB": {
			map[string]string{"Kptfile": plainKptfile, "a": strings.Repeat("a", 16<<20-len(plainKptfile)-len("Kptfile")-1)},
			map[string]string{"Kptfile": plainKptfile, "a": strings.Repeat("a", 16<<20-len(plainKptfile)-len("Kptfile"))},
			pipeline.TooLarge, []string{"16777217 bytes", "at most 16777216"},
		},
		"100,000 values behind YAML aliases": {
			map[string]string{"Kptfile": plainKptfile, "a.yaml": configMap + aliases(3)},
			map[string]string{"Kptfile": plainKptfile, "a.yaml": configMap + aliases(8)},
			pipeline.InvalidPackage, []string{"a.yaml", "100000 values"},
		},
		"YAML aliases in a Kptfile": {
			map[string]string{"Kptfile": plainKptfile + "status:\n" + indent(aliases(3))},
			map[string]string{"Kptfile": plainKptfile + "status:\n" + indent(aliases(8))},
			pipeline.InvalidPackage, []string{"Kptfile", "100000 values"},
		},
		"YAML that is nested 10,000 deep": {
			map[string]string{"Kptfile": plainKptfile, "a.yaml": configMap + "a: " + strings.Repeat("[", 9_000) + strings.Repeat("]", 9_000) + "\n"},
			map[string]string{"Kptfile": plainKptfile, "a.yaml": configMap + "a: " + strings.Repeat("[", 11_000) + strings.Repeat("]", 11_000) + "\n"},
			pipeline.InvalidPackage, []string{"a.yaml", "depth"},
		},
		"256 KiB of a Starlark program": {
			withStarlark(strings.Repeat("#", 256<<10)), withStarlark(strings.Repeat("#", 256<<10+1)),
			pipeline.FunctionFailed, []string{"262145 bytes", "262144"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(render(t, test.within).Failure).To(BeNil())
			outcome := render(t, test.beyond)
			g.Expect(outcome.Failure).NotTo(BeNil())
			g.Expect(outcome.Failure.Class).To(Equal(test.class))
			for _, words := range test.says {
				g.Expect(outcome.Failure.Message).To(ContainSubstring(words))
			}
		})
	}
	g := NewWithT(t)
	g.Expect(pipeline.DefaultFunctionTimeout).To(Equal(time.Minute))
	g.Expect(pipeline.DefaultMaxResults).To(Equal(1_000))
	g.Expect(pipeline.DefaultMaxStderr).To(Equal(16 << 10))
}

// aliases are lines whose values grow tenfold with each of them.
func aliases(lines int) string {
	out := "a0: &a0 x\n"
	for i := range lines {
		out += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 10), ","))
	}
	return out
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n  ") + "\n"
}

func TestStarlarkIsBoundedInStepsAndTime(t *testing.T) {
	g := NewWithT(t)
	endless := withStarlark("while True: pass")
	outcome := renderWith(t, endless, nothing, pipeline.Limits{MaxStarlarkSteps: 1_000})
	g.Expect(outcome.Failure).NotTo(BeNil())
	g.Expect(outcome.Failure.Class).To(Equal(pipeline.FunctionFailed))
	g.Expect(outcome.Failure.Message).To(ContainSubstring("more than 1000 steps"))

	outcome = renderWith(t, endless, nothing, pipeline.Limits{FunctionTimeout: time.Millisecond, MaxStarlarkSteps: 1 << 40})
	g.Expect(outcome.Failure).NotTo(BeNil())
	g.Expect(outcome.Failure.Class).To(Equal(pipeline.FunctionTimedOut))
	g.Expect(outcome.Failure.Message).To(ContainSubstring("longer than 1ms"))
	g.Expect(outcome.Files).To(Equal(endless))
}
