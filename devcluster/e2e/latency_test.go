package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// BenchmarkAPod measures, from the outside, how long a pod takes from its creation until its program begins and until it is
// reported as running, and from its program's end until that is reported.
func BenchmarkAPod(b *testing.B) {
	pods := client.CoreV1().Pods("default")
	watcher, err := pods.Watch(b.Context(), metav1.ListOptions{LabelSelector: "app=latency"})
	if err != nil {
		b.Fatal(err)
	}
	defer watcher.Stop()
	var begins, reports, ends time.Duration
	for i := range b.N {
		pod := shellPod("date +%s%N; sleep 0.2; exec date +%s%N")
		pod.Name, pod.Labels = fmt.Sprintf("latency-%d-%d", b.N, i), map[string]string{"app": "latency"}
		created := time.Now()
		if _, err := pods.Create(b.Context(), pod, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		var running, ended time.Time
		for ended.IsZero() {
			event, open := <-watcher.ResultChan()
			if !open {
				b.Fatal("the watch ended")
			}
			seen := event.Object.(*corev1.Pod)
			switch {
			case seen.Name != pod.Name:
			case seen.Status.Phase == corev1.PodRunning && running.IsZero():
				running = time.Now()
			case seen.Status.Phase == corev1.PodSucceeded:
				ended = time.Now()
			}
		}
		raw, err := pods.GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		lines := strings.Fields(string(raw))
		reports += running.Sub(created)
		begins += stamp(b, lines[0]).Sub(created)
		ends += ended.Sub(stamp(b, lines[1]))
	}
	for name, total := range map[string]time.Duration{"create-to-program": begins, "create-to-Running": reports, "exit-to-Succeeded": ends} {
		b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), name+"-ms")
	}
}

func stamp(b *testing.B, nanoseconds string) time.Time {
	n, err := strconv.ParseInt(nanoseconds, 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Unix(0, n)
}
