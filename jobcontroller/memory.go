package jobcontroller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// What the controller remembers only makes it quicker, or its metrics and counts better: it may be lost at any moment.

// memory is what the controller remembers of the revisions that exist.
type memory struct {
	mu        sync.Mutex
	revisions map[types.NamespacedName]*remembered
}

// remembered is the memory of one revision; a namesake that is made later has a memory of its own.
type remembered struct {
	uid types.UID
	// seen is when an edit that is not rendered yet was first seen.
	seen time.Time
	// cancelled are renders that were cancelled and that no status counts yet, with their names: an edit that comes at the
	// same time keeps the status from being written.
	cancelled map[types.UID]string
	// harvested are renders whose results were applied while their Jobs were not complete.
	harvested map[types.UID]bool
}

// of is the memory of a revision, to be used while mu is held.
func (m *memory) of(rev *kiln.PackageRevision) *remembered {
	key := types.NamespacedName{Namespace: rev.Namespace, Name: rev.Name}
	if m.revisions == nil {
		m.revisions = map[types.NamespacedName]*remembered{}
	}
	if r := m.revisions[key]; r != nil && r.uid == rev.UID {
		return r
	}
	r := &remembered{uid: rev.UID, cancelled: map[types.UID]string{}, harvested: map[types.UID]bool{}}
	m.revisions[key] = r
	return r
}

// sawEdit notes an edit. An earlier one that is not rendered yet keeps its time.
func (m *memory) sawEdit(rev *kiln.PackageRevision, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.of(rev); r.seen.IsZero() {
		r.seen = at
	}
}

func (m *memory) cancelled(rev *kiln.PackageRevision, render Render) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(rev).cancelled[render.UID] = render.Name
}

func (m *memory) harvested(rev *kiln.PackageRevision, render Render) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(rev).harvested[render.UID] = true
}

// recall fills in what is remembered. Renders that are over or gone need not be remembered any longer.
func (m *memory) recall(o *observed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(o.revision)
	maps.DeleteFunc(r.harvested, func(uid types.UID, _ bool) bool {
		return !slices.ContainsFunc(o.renders, func(render Render) bool { return render.UID == uid && render.State == RenderActive })
	})
	o.seen, o.cancelled, o.harvestedBefore = r.seen, maps.Clone(r.cancelled), maps.Clone(r.harvested)
}

// written forgets what a status that was written says; settled tells that it speaks of the edit, too.
func (m *memory) written(rev *kiln.PackageRevision, settled bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.of(rev)
	clear(r.cancelled)
	if settled {
		r.seen = time.Time{}
	}
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.revisions, key)
}

// maxRejected bounds the memory of results that failed verification.
const maxRejected = 4096

// rejectedResults remembers results that failed verification. They are immutable, so the verdict stands; what is forgotten
// is verified, and rejected, again.
type rejectedResults struct {
	mu  sync.Mutex
	ids map[types.UID]struct{}
}

func (r *rejectedResults) add(id types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ids == nil || len(r.ids) >= maxRejected {
		r.ids = map[types.UID]struct{}{}
	}
	r.ids[id] = struct{}{}
}

func (r *rejectedResults) has(id types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.ids[id]
	return ok
}
