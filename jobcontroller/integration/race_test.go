package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// Editors race publishers, each in a process of its own: whatever they do, what is published is what was rendered. The
// variable RACE_ROUNDS says how many revisions are published that way.
const (
	raceRounds     = 40
	raceLanes      = 4
	raceEditors    = 2
	racePublishers = 3
	racePause      = 250 * time.Millisecond
)

// In a racer's environment: what it does, and where.
const (
	envRacer     = "KILN_TEST_RACER"
	envRaceSpace = "KILN_TEST_RACE_NAMESPACE"

	racerUser = "racer"
)

func TestEditorsRacingPublishersNeverPublishWhatWasNotRendered(t *testing.T) {
	g := NewWithT(t)
	rounds := raceRounds
	if text := os.Getenv("RACE_ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		g.Expect(err).NotTo(HaveOccurred())
	}
	ns := namespace(t)
	bind(t, ns, racerUser, "admin") // It may edit and approve, but not import.
	for range raceEditors {
		startRacer(t, "editor", ns)
	}
	for range racePublishers {
		startRacer(t, "publisher", ns)
	}

	var begun, published, edits atomic.Int64
	failures := make(chan error, raceLanes)
	for lane := range raceLanes {
		go func() {
			for begun.Add(1) <= int64(rounds) {
				edited, err := raceOnce(t.Context(), ns, fmt.Sprintf("lane-%d", lane))
				if err != nil {
					failures <- err
					return
				}
				edits.Add(edited)
				if n := published.Add(1); n%100 == 0 {
					t.Logf("%d revisions were published", n)
				}
			}
			failures <- nil
		}()
	}
	for range raceLanes {
		g.Expect(<-failures).To(Succeed())
	}
	t.Logf("%d rounds: every published revision was a rendered one; they were edited %d times before", published.Load(), edits.Load())
	g.Expect(published.Load()).To(BeEquivalentTo(rounds))
	g.Expect(edits.Load()).To(BeNumerically(">", 0))
}

// raceOnce makes a draft and waits until the racers have published it. Then it looks on for a moment and removes it, so that
// the next one is its namesake. It returns how often the files were written before.
func raceOnce(ctx context.Context, namespace, name string) (edits int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, 4*patience)
	defer cancel()
	rev := revision(namespace, name, smallPackage())
	// A late server-side apply of an editor makes the draft itself.
	if err := admin.Create(ctx, rev); err != nil && !apierrors.IsAlreadyExists(err) {
		return 0, fmt.Errorf("create %s: %w", name, err)
	}
	seen := &kiln.PackageRevision{}
	for seen.Spec.Lifecycle != kiln.LifecyclePublished {
		time.Sleep(pollInterval)
		if err := admin.Get(ctx, client.ObjectKeyFromObject(rev), seen); err != nil {
			return 0, fmt.Errorf("wait until %s is published (it is %s, %v): %w", name, seen.Spec.Lifecycle, conditions(seen), err)
		}
		if seen.Spec.Lifecycle != kiln.LifecycleDraft {
			if err := checkRendered(seen); err != nil {
				return 0, err
			}
		}
	}
	time.Sleep(racePause)
	later := &kiln.PackageRevision{}
	if err := admin.Get(ctx, client.ObjectKeyFromObject(rev), later); err != nil {
		return 0, err
	}
	if fmt.Sprint(later.Spec) != fmt.Sprint(seen.Spec) {
		return 0, fmt.Errorf("%s changed after it was published:\n%v\n%v", name, seen.Spec, later.Spec)
	}
	if err := moveTo(admin, rev, kiln.LifecycleDeletionProposed); err != nil {
		return 0, fmt.Errorf("propose the deletion of %s: %w", name, err)
	}
	return seen.Generation, admin.Delete(ctx, rev)
}

// checkRendered says whether the files are what a successful render left: an editor's are without the namespace, and have no
// business here when their pipeline fails.
func checkRendered(rev *kiln.PackageRevision) error {
	if !strings.Contains(text(rev, "cm.yaml"), "namespace: shop") || strings.Contains(text(rev, "Kptfile"), unknownFunction) {
		return fmt.Errorf("%s is %s without being rendered:\n%s\n%s\n%v", rev.Name, rev.Spec.Lifecycle, text(rev, "Kptfile"), text(rev, "cm.yaml"), conditions(rev))
	}
	return nil
}

const unknownFunction = "nobody-knows"

// startRacer starts this test's binary again, as a racer, and kills it when the test ends.
func startRacer(t *testing.T, role, namespace string) {
	t.Helper()
	racer := exec.Command(os.Args[0])
	racer.Env = append(os.Environ(), envRacer+"="+role, envRaceSpace+"="+namespace, "KUBECONFIG="+adminFile)
	racer.Stdout, racer.Stderr = os.Stderr, os.Stderr
	NewWithT(t).Expect(racer.Start()).To(Succeed())
	t.Cleanup(func() {
		_ = racer.Process.Kill()
		_ = racer.Wait() // It was killed.
	})
}

// runRacer goes over the revisions of the namespace for ever, in random order and every way of writing. What is refused, or
// comes too late, is just that.
func runRacer(role string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 200
	config.Impersonate.UserName = racerUser
	scheme := runtime.NewScheme()
	if err := kiln.AddToScheme(scheme); err != nil {
		return err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	act := publishOnce
	if role == "editor" {
		act = editOnce
	}
	for {
		revs := &kiln.PackageRevisionList{}
		if err := c.List(context.Background(), revs, client.InNamespace(os.Getenv(envRaceSpace))); err != nil {
			return err
		}
		for _, i := range rand.Perm(len(revs.Items)) {
			if err := act(c, &revs.Items[i]); err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
				return fmt.Errorf("%s: %w", role, err)
			}
		}
		time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond))))
	}
}

// publishOnce takes a revision a step on, whatever it looks like.
func publishOnce(c client.Client, rev *kiln.PackageRevision) error {
	next := kiln.LifecycleProposed
	if rev.Spec.Lifecycle == kiln.LifecycleProposed {
		next = kiln.LifecyclePublished
	}
	for _, write := range everyWay { // In random order.
		return write(context.Background(), c, client.ObjectKeyFromObject(rev), next)
	}
	return nil
}

// editOnce writes files that no render has seen; one in four makes the render fail. Most of the time it does nothing, so that
// renders come to an end at all.
func editOnce(c client.Client, rev *kiln.PackageRevision) error {
	if rand.IntN(25) > 0 {
		return nil
	}
	pipeline := setNamespace("shop")
	if rand.IntN(4) == 0 {
		pipeline = "{image: " + unknownFunction + ":v1}"
	}
	changed := map[string]string{"Kptfile": kptfile(pipeline), "cm.yaml": configMap("cm", fmt.Sprint(rand.Int()))}
	ctx, target := context.Background(), named(client.ObjectKeyFromObject(rev))
	switch rand.IntN(4) {
	case 0:
		return patchSpec(c, rev, map[string]any{"resources": changed})
	case 1:
		patch := fmt.Appendf(nil, `[{"op":"add","path":"/spec/resources/Kptfile","value":%q},{"op":"add","path":"/spec/resources/cm.yaml","value":%q}]`, changed["Kptfile"], changed["cm.yaml"])
		return c.Patch(ctx, target, client.RawPatch(types.JSONPatchType, patch))
	case 2:
		apply := revision(rev.Namespace, rev.Name, changed)
		apply.Spec.Lifecycle = kiln.LifecycleDraft
		apply.SetGroupVersionKind(kiln.GroupVersion.WithKind("PackageRevision"))
		//nolint:staticcheck // There are no generated apply configurations for Kiln's kinds.
		return c.Patch(ctx, apply, client.Apply, client.ForceOwnership, client.FieldOwner("editor"))
	default:
		fresh := named(client.ObjectKeyFromObject(rev))
		if err := c.Get(ctx, client.ObjectKeyFromObject(rev), fresh); err != nil {
			return err
		}
		for path, text := range changed {
			fresh.Spec.Resources[path] = kiln.FileText(text)
		}
		return c.Update(ctx, fresh)
	}
}
