package jobcontroller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// eventAction is what Kiln does to a PackageRevision, in the words of events.k8s.io.
const eventAction = "Render"

// maxEventNote is what events.k8s.io allows.
const maxEventNote = 1024

// notice is an Event to emit on the PackageRevision once the status that it speaks of is stored.
type notice struct {
	kind   string
	reason string
	note   string
}

func startedEvent(render Render) notice {
	return notice{corev1.EventTypeNormal, "RenderStarted", fmt.Sprintf("Job %s renders the contents %.12s.", render.Name, render.InputDigest)}
}

func cancelledEvent(name string, lifecycle kiln.Lifecycle) notice {
	if lifecycle != kiln.LifecycleDraft {
		return notice{corev1.EventTypeNormal, "RenderCancelled", fmt.Sprintf("Render %s is cancelled: only a Draft is rendered, and the lifecycle is %s.", name, lifecycle)}
	}
	return notice{corev1.EventTypeNormal, "RenderSuperseded", fmt.Sprintf("Render %s is superseded: the contents have changed, or a new render was asked for.", name)}
}

func outcomeEvent(outcome *kiln.RenderOutcome, replay bool) notice {
	switch {
	case !outcome.Succeeded:
		return notice{corev1.EventTypeWarning, "RenderFailed", truncate(fmt.Sprintf("%s: %s", outcome.Reason, outcome.Message), maxEventNote)}
	case replay:
		return notice{corev1.EventTypeNormal, "RenderReplayed", fmt.Sprintf("The contents returned to the input of render %s; its result was applied again.", outcome.JobName)}
	}
	return notice{corev1.EventTypeNormal, "RenderSucceeded", fmt.Sprintf("The result of Job %s was applied: contents %.12s.", outcome.JobName, outcome.OutputDigest)}
}
