package bundle

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Result is what a render produced.
type Result struct {
	// InputDigest and OutputDigest are those of the contents before and after.
	InputDigest  string `json:"inputDigest"`
	OutputDigest string `json:"outputDigest"`
	Succeeded    bool   `json:"succeeded"`
	// FailureReason is the class of a failure, in one word, FailureMessage the failure in words.
	FailureReason  string `json:"failureReason,omitempty"`
	FailureMessage string `json:"failureMessage,omitempty"`
	// Changed are the files that are new or different, Deleted those that are gone. After a failure there are some only
	// if the package asks for what was rendered up to then.
	Changed map[string]string `json:"-"`
	Deleted []string          `json:"deleted,omitempty"`
	// Steps are the functions that ran, in their order.
	Steps []Step `json:"steps,omitempty"`

	RendererVersion string    `json:"rendererVersion,omitempty"`
	StartTime       time.Time `json:"startTime"`
	FinishTime      time.Time `json:"finishTime"`
}

// Step is one function's run.
type Step struct {
	// Package is the path of the package whose pipeline names the function; "." is the root.
	Package string `json:"package"`
	// Phase is mutate or validate.
	Phase string `json:"phase"`
	Name  string `json:"name,omitempty"`
	Image string `json:"image,omitempty"`
	// ExitCode is 0 for a success.
	ExitCode             int    `json:"exitCode"`
	DurationMilliseconds int64  `json:"durationMilliseconds"`
	Stderr               string `json:"stderr,omitempty"`
	// Results are what the function reported.
	Results []StepResult `json:"results,omitempty"`
}

// StepResult is one thing that a function reported, as in a ResourceList.
type StepResult struct {
	Severity string `json:"severity,omitempty"`
	Message  string `json:"message"`
	// Resource is APIVERSION/KIND/NAMESPACE/NAME of the resource it is about.
	Resource string `json:"resource,omitempty"`
	Field    string `json:"field,omitempty"`
	File     string `json:"file,omitempty"`
}

// Diff fills in what the render changed and both digests.
func (r *Result) Diff(input, output map[string]string) {
	r.InputDigest, r.OutputDigest = Digest(input), Digest(output)
	r.Changed, r.Deleted = map[string]string{}, nil
	for path, text := range output {
		if old, ok := input[path]; !ok || old != text {
			r.Changed[path] = text
		}
	}
	for _, path := range slices.Sorted(maps.Keys(input)) {
		if _, ok := output[path]; !ok {
			r.Deleted = append(r.Deleted, path)
		}
	}
}

// Apply makes the output of the input, and verifies that each is the one that the result speaks of.
func (r *Result) Apply(input map[string]string) (map[string]string, error) {
	if digest := Digest(input); digest != r.InputDigest {
		return nil, fmt.Errorf("the contents have the digest %s, and the result is about %s", digest, r.InputDigest)
	}
	output := maps.Clone(input)
	if output == nil {
		output = map[string]string{}
	}
	for _, path := range r.Deleted {
		if _, ok := output[path]; !ok {
			return nil, fmt.Errorf("%w: the result deletes %q, which is not there", ErrDamaged, path)
		}
		delete(output, path)
	}
	maps.Copy(output, r.Changed)
	if digest := Digest(output); digest != r.OutputDigest {
		return nil, fmt.Errorf("%w: the result leads to the digest %s, not to %s as it says", ErrDamaged, digest, r.OutputDigest)
	}
	return output, nil
}

// In the archive of a result the changed files are below filesPrefix; reportName has the rest.
const (
	filesPrefix = "files/"
	reportName  = "result.json"
)

func packResult(r *Result) ([]byte, error) {
	report, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	files := map[string]string{reportName: string(report)}
	for path, text := range r.Changed {
		if err := CheckPath(path); err != nil {
			return nil, err
		}
		files[filesPrefix+path] = text
	}
	return pack(files)
}

func unpackResult(data []byte, limits Limits) (*Result, error) {
	files, err := unpack(data, limits)
	if err != nil {
		return nil, err
	}
	report, ok := files[reportName]
	if !ok {
		return nil, fmt.Errorf("%w: the archive has no %s", ErrDamaged, reportName)
	}
	delete(files, reportName)
	r := &Result{Changed: map[string]string{}}
	if err := json.Unmarshal([]byte(report), r); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, reportName, err)
	}
	for name, text := range files {
		path, ok := strings.CutPrefix(name, filesPrefix)
		if !ok {
			return nil, fmt.Errorf("%w: %q is neither the report nor a file of the package", ErrDamaged, name)
		}
		r.Changed[path] = text
	}
	seen := map[string]bool{}
	for _, path := range r.Deleted {
		if err := CheckPath(path); err != nil {
			return nil, err
		}
		if _, changed := r.Changed[path]; changed || seen[path] {
			return nil, fmt.Errorf("%w: %q is deleted and changed, or deleted twice", ErrDamaged, path)
		}
		seen[path] = true
	}
	return r, nil
}
