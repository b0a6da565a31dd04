package jobcontroller

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// What the controller remembers only makes it quicker or its metrics better: it may be lost at any moment.

// editTimes remembers when an edit that was not rendered yet was first seen.
type editTimes struct {
	mu sync.Mutex
	at map[types.NamespacedName]time.Time
}

// saw notes an edit. An earlier one that is not rendered yet keeps its time.
func (e *editTimes) saw(key types.NamespacedName, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == nil {
		e.at = map[types.NamespacedName]time.Time{}
	}
	if _, ok := e.at[key]; !ok {
		e.at[key] = at
	}
}

func (e *editTimes) seen(key types.NamespacedName) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at[key]
}

func (e *editTimes) forget(key types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.at, key)
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

// cancelledRenders remembers renders that were cancelled and that no status counts yet, by UID with their names: an edit
// that comes at the same time keeps the status from being written.
type cancelledRenders struct {
	mu    sync.Mutex
	names map[types.NamespacedName]map[types.UID]string
}

func (c *cancelledRenders) add(key types.NamespacedName, render Render) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = map[types.NamespacedName]map[types.UID]string{}
	}
	if c.names[key] == nil {
		c.names[key] = map[types.UID]string{}
	}
	c.names[key][render.UID] = render.Name
}

func (c *cancelledRenders) of(key types.NamespacedName) map[types.UID]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.names[key])
}

func (c *cancelledRenders) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.names, key)
}
