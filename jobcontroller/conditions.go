package jobcontroller

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/renderer-image/kptfile"
)

// maxStatusMessage bounds the message of a condition on the object: a third of what metav1.Condition allows.
const maxStatusMessage = 10000

// story is what all conditions of a PackageRevision tell together; setting them from one value keeps them from
// contradicting each other.
type story struct {
	// finished: no render is scheduled or running.
	finished bool
	// rendered: what the last render of these contents came to; nil when there is none to speak of.
	rendered *bool
	// ready: there is nothing left to do and nothing wrong.
	ready   bool
	reason  string
	message string
}

func inProgress(reason, message string) story {
	return story{reason: reason, message: message}
}

func succeeded(message string) story {
	yes := true
	return story{finished: true, rendered: &yes, ready: true, reason: kiln.ReasonRenderSuccess, message: message}
}

func failed(reason, message string) story {
	no := false
	return story{finished: true, rendered: &no, reason: reason, message: message}
}

// neverRendered is told of contents that no render has seen and none will.
func neverRendered(reason, message string) story {
	return story{finished: true, reason: reason, message: message}
}

// notDraftStory is told of contents that no render came to and that are not rendered any more. What was published without
// Kiln is nobody's fault.
func notDraftStory(lifecycle kiln.Lifecycle) story {
	if lifecycle == kiln.LifecycleProposed {
		return neverRendered(kiln.ReasonNotDraft, "These contents were not rendered, and only a Draft is. Return the lifecycle to Draft to render them.")
	}
	told := neverRendered(kiln.ReasonNotDraft, "These contents were imported: Kiln did not render them, and renders only a Draft.")
	told.ready = true
	return told
}

// tell sets the conditions of the status. Conditions that say nothing new keep their transition times.
func tell(status *kiln.PackageRevisionStatus, s story, generation int64, now time.Time) {
	status.ObservedGeneration = generation
	set := func(conditionType string, value bool, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type:               conditionType,
			Status:             statusOf(value),
			ObservedGeneration: generation,
			LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
			Reason:             reason,
			Message:            truncate(message, maxStatusMessage),
		})
	}
	drop := func(conditionType string) { meta.RemoveStatusCondition(&status.Conditions, conditionType) }

	if s.finished {
		reason := kiln.ReasonFinished
		if s.rendered == nil {
			reason = s.reason
		}
		set(kiln.ConditionRenderFinished, true, reason, "No render is scheduled or running.")
		drop(kiln.ConditionReconciling)
	} else {
		set(kiln.ConditionRenderFinished, false, s.reason, s.message)
		set(kiln.ConditionReconciling, true, s.reason, s.message)
	}
	if s.rendered != nil {
		set(kiln.ConditionRendered, *s.rendered, s.reason, s.message)
	} else {
		drop(kiln.ConditionRendered)
	}
	set(kiln.ConditionReady, s.ready, s.reason, s.message)
	if s.finished && !s.ready {
		set(kiln.ConditionStalled, true, s.reason, s.message)
	} else {
		drop(kiln.ConditionStalled)
	}
}

// In the Kptfile the conditions carry kpt's reasons, and the digest they speak of ends the message.

const digestMark = "sha256:"

// kptfileConclusion are the conditions that tell an outcome.
func kptfileConclusion(outcome *kiln.RenderOutcome) []kptfile.Condition {
	digest := cmp.Or(outcome.OutputDigest, outcome.InputDigest)
	if outcome.Succeeded {
		return kptfileSuccess(digest)
	}
	return kptfileFailure(outcome.Reason, outcome.Message, digest)
}

func kptfileSuccess(digest string) []kptfile.Condition {
	return []kptfile.Condition{
		{Type: kiln.ConditionRenderFinished, Status: "True", Reason: kiln.ReasonFinished, Message: aboutDigest("No render is scheduled or running for", digest)},
		{Type: kiln.ConditionRendered, Status: "True", Reason: kiln.ReasonRenderSuccess, Message: aboutDigest("The package is rendered:", digest)},
	}
}

func kptfileFailure(reason, message, digest string) []kptfile.Condition {
	said := strings.TrimSuffix(truncate(reason+": "+strings.TrimSpace(message), maxConditionText-100), ".")
	return []kptfile.Condition{
		{Type: kiln.ConditionRenderFinished, Status: "True", Reason: kiln.ReasonFinished, Message: aboutDigest("No render is scheduled or running for", digest)},
		{Type: kiln.ConditionRendered, Status: "False", Reason: kiln.ReasonRenderFailed, Message: aboutDigest(said+". Contents", digest)},
	}
}

func kptfileInProgress(digest string) []kptfile.Condition {
	return []kptfile.Condition{
		{Type: kiln.ConditionRenderFinished, Status: "False", Reason: kiln.ReasonScheduled, Message: aboutDigest("A render is scheduled or running for", digest)},
	}
}

func aboutDigest(text, digest string) string { return text + " " + digestMark + digest }

// kptfileLies says whether a Kptfile whose contents are about to be rendered claims to be rendered already, or that no
// render is going on. What it says of these very contents being under way is true and may stay.
func kptfileLies(conditions []kiln.PackageCondition, digest string) bool {
	for _, c := range conditions {
		switch c.Type {
		case kiln.ConditionRendered:
			return true
		case kiln.ConditionRenderFinished:
			if c.Status != metav1.ConditionFalse || !strings.HasSuffix(c.Message, digestMark+digest) {
				return true
			}
		}
	}
	return false
}

// kptfileTells says whether a Kptfile tells the outcome.
func kptfileTells(conditions []kiln.PackageCondition, outcome *kiln.RenderOutcome) bool {
	for _, want := range kptfileConclusion(outcome) {
		told := kiln.PackageCondition{
			Type:    want.Type,
			Status:  metav1.ConditionStatus(want.Status),
			Reason:  truncate(want.Reason, maxConditionText),
			Message: truncate(want.Message, maxConditionText),
		}
		if !slices.Contains(conditions, told) {
			return false
		}
	}
	return true
}

func statusOf(value bool) metav1.ConditionStatus {
	if value {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

func validStatus(text string) bool {
	return text == string(metav1.ConditionTrue) || text == string(metav1.ConditionFalse) || text == string(metav1.ConditionUnknown)
}

// truncate cuts a text to at most n bytes, at a rune, and marks the cut.
func truncate(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const mark = "…"
	cut := n - len(mark)
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + mark
}
