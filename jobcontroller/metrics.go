package jobcontroller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// secondsBuckets go from a millisecond to eight minutes, doubling.
var secondsBuckets = prometheus.ExponentialBuckets(0.001, 2, 20)

var (
	editToJobSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kiln_edit_to_job_seconds",
		Help:    "Time from the moment the controller saw an edit to the creation of the render's Job, first attempts only.",
		Buckets: secondsBuckets,
	})
	editToRenderedSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kiln_edit_to_rendered_seconds",
		Help:    "Time from the moment the controller saw an edit to the outcome of its render, by outcome.",
		Buckets: secondsBuckets,
	}, []string{"outcome"})
	runSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kiln_render_run_seconds",
		Help:    "Time from the creation of a render's Job to its outcome.",
		Buckets: secondsBuckets,
	})
	harvestSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kiln_harvest_seconds",
		Help:    "Time to verify a result, apply it and write the status.",
		Buckets: secondsBuckets,
	})
	rendersTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kiln_renders_total",
		Help: "Renders that came to an outcome, by outcome: success, failure or replay.",
	}, []string{"outcome"})
	supersededTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kiln_renders_superseded_total",
		Help: "Renders that were cancelled because the contents had changed.",
	})
	conflictsTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kiln_apply_conflicts_total",
		Help: "Results whose application met a newer version of the revision and was tried again.",
	})
	rejectedTotal = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kiln_results_rejected_total",
		Help: "Results that failed verification.",
	})
)

func init() {
	metrics.Registry.MustRegister(editToJobSeconds, editToRenderedSeconds, runSeconds, harvestSeconds,
		rendersTotal, supersededTotal, conflictsTotal, rejectedTotal)
}

// observeOutcome records a render that was settled.
func observeOutcome(at *kiln.RenderStatus, outcome *kiln.RenderOutcome, replay bool) {
	label := "failure"
	switch {
	case replay:
		label = "replay"
	case outcome.Succeeded:
		label = "success"
	}
	rendersTotal.WithLabelValues(label).Inc()
	if at.FinishTime == nil {
		return
	}
	if at.ScheduledTime != nil {
		editToRenderedSeconds.WithLabelValues(label).Observe(at.FinishTime.Sub(at.ScheduledTime.Time).Seconds())
	}
	if at.StartTime != nil && !replay {
		runSeconds.Observe(at.FinishTime.Sub(at.StartTime.Time).Seconds())
	}
}
