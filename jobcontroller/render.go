package jobcontroller

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
	"github.com/kiln-dev/kiln/renderer-image/bundle"
)

// Executor starts, cancels and observes renders. The rest of the controller cannot tell how a render is run.
type Executor interface {
	// Renders are the renders of a revision that are not being deleted, those that ended included, in no order. One that
	// expected names is looked up live when it is not among them.
	Renders(ctx context.Context, rev *kiln.PackageRevision, expected string) ([]Render, error)
	// Start begins a render, or finds the one that was begun under the order's name. It fails with ErrQuota,
	// ErrNameTaken, ErrIdentity or ErrClosing, as the case may be.
	Start(ctx context.Context, order Order) (Render, error)
	// Supply hands a render what it needs: its snapshot, and an identity to publish with. It does nothing when the render has
	// both, and fails with ErrQuota, ErrNameTaken, ErrIdentity or ErrClosing, as the case may be.
	Supply(ctx context.Context, render Render, files map[string]string) error
	// Cancel ends a render and removes all of it, its result included. A render that is gone already is fine.
	Cancel(ctx context.Context, render Render) error
	// Fetch reads a result and verifies it: every digest, and that it was published by the render. It fails with
	// ErrNotAResult if it was not, or is damaged.
	Fetch(ctx context.Context, render Render, stored StoredResult) (*bundle.Result, error)
}

// ErrNotAResult says that what looks like a result of a render is not one, or is damaged.
var ErrNotAResult = errors.New("not a valid result of the render")

// Why a render cannot be started.
var (
	// ErrQuota: the namespace's ResourceQuota has no room for it.
	ErrQuota = errors.New("the namespace's quota is used up")
	// ErrNameTaken: an object that is not Kiln's has the render's name.
	ErrNameTaken = errors.New("another object has the render's name")
	// ErrIdentity: somebody else's object is in the place of the identity that the renderer publishes with.
	ErrIdentity = errors.New("the renderer's identity is not the one that Kiln made")
	// ErrClosing: the namespace is being deleted.
	ErrClosing = errors.New("the namespace is being deleted")
)

// RenderState says whether a render is over.
type RenderState string

// The states of a render.
const (
	// RenderActive may still publish a result.
	RenderActive RenderState = "Active"
	// RenderEnded is over, whatever came of it.
	RenderEnded RenderState = "Ended"
	// RenderDeadline is over because it took longer than its class allows.
	RenderDeadline RenderState = "DeadlineExceeded"
)

// Render is one run of the pipeline over one snapshot, as an Executor sees it.
type Render struct {
	Namespace string
	Name      string
	UID       types.UID
	// InputDigest is the digest of the contents it renders.
	InputDigest string
	// Request is the value of the annotation kiln.dev/render-requested-at that it answers.
	Request string
	// Attempt counts the renders of the same contents and request, from 1.
	Attempt int32
	Created time.Time
	State   RenderState
	// Ended is when it was over; zero while it is active.
	Ended time.Time
	// Succeeded is what the executor says of a render that is over; what counts is its result.
	Succeeded bool
	// Why says in words why a render that is over did not succeed.
	Why string
	// Supplied: it has its snapshot and an identity.
	Supplied bool
	// Results are what it published, oldest first.
	Results []StoredResult
}

// StoredResult is a result that waits to be harvested. What it claims is not verified yet.
type StoredResult struct {
	Namespace string
	Name      string
	UID       types.UID
	// OutputDigest is what the result claims to lead to.
	OutputDigest string
}

// Order is what it takes to start a render.
type Order struct {
	Revision    *kiln.PackageRevision
	Class       *kiln.RenderClassSpec
	InputDigest string
	Request     string
	Attempt     int32
}
