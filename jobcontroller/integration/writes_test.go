package integration

import (
	"bufio"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
)

// write is what the API server's audit log says of one request.
type write struct {
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// writesIn counts what the controller wrote in a namespace, as the API server saw it, by verb and resource.
func writesIn(namespace string) (map[string]int, error) {
	log, err := os.Open(filepath.Join(state, "audit.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	counts := map[string]int{}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var w write
		if json.Unmarshal(lines.Bytes(), &w) != nil {
			continue // The last line may still be being written.
		}
		if w.Stage != "ResponseComplete" || w.User.Username != "system:serviceaccount:"+controllerNamespace+":"+controllerAccount || w.ObjectRef.Namespace != namespace {
			continue
		}
		if slices.Contains([]string{"create", "update", "patch", "delete", "deletecollection"}, w.Verb) {
			resource := w.ObjectRef.Resource
			if w.ObjectRef.Subresource != "" {
				resource += "/" + w.ObjectRef.Subresource
			}
			counts[w.Verb+" "+resource]++
		}
	}
	return counts, lines.Err()
}

func sum(counts map[string]int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// An uncontended render costs the controller at most this many writes; four of them at most rewrite the whole object.
const (
	maxWrites      = 8
	maxWholeWrites = 4
)

func TestARenderCostsTheControllerAtMostEightWrites(t *testing.T) {
	g := NewWithT(t)
	ns := namespace(t)
	files := map[string]string{"Kptfile": kptfile(setNamespace("shop")), "cm.yaml": configMap("cm", "1")}
	waitRendered(t, create(t, revision(ns, "first", files))) // The namespace's renderer identity is made once.

	rev := create(t, revision(ns, "web", files))
	waitRendered(t, rev)
	before := settledWrites(t, ns)
	// The Kptfile says that the package is rendered: after the edit that is a lie, and its correction is one more write.
	edit(t, rev, "cm.yaml", configMap("cm", "2"))
	waitRendered(t, rev)
	after := settledWrites(t, ns)

	made := map[string]int{}
	for kind, n := range after {
		if n > before[kind] {
			made[kind] = n - before[kind]
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(made)) {
		t.Logf("%d × %s", made[kind], kind)
	}
	t.Logf("%d writes", sum(made))
	g.Expect(sum(made)).To(BeNumerically("<=", maxWrites), fmt.Sprint(made))
	g.Expect(made["patch packagerevisions"]+made["patch packagerevisions/status"]).To(BeNumerically("<=", maxWholeWrites), fmt.Sprint(made))
}

// settledWrites counts the writes once the render's last one, an Event, has been made.
func settledWrites(t *testing.T, namespace string) map[string]int {
	t.Helper()
	var counts map[string]int
	NewWithT(t).Eventually(func(g Gomega) {
		var err error
		counts, err = writesIn(namespace)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(counts["create events"]).To(Equal(2 * counts["create jobs"]))
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	return counts
}
