package jobcontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// RevisionStore reads the contents of package revisions and changes them.
type RevisionStore interface {
	// Read returns the contents as they are now. It fails with ErrStale if the revision is gone.
	Read(ctx context.Context, key types.NamespacedName) (*Contents, error)
	// Apply changes contents that were read into files and returns what is stored then. It fails with ErrStale if anything
	// of the revision has changed since it was read, and with ErrDoesNotFit if the store has no room for the files.
	Apply(ctx context.Context, read *Contents, files map[string]string) (*Contents, error)
}

var (
	// ErrDoesNotFit says that contents are larger than the store takes.
	ErrDoesNotFit = errors.New("the contents do not fit the API server")
	// ErrStale says that a revision is not the one that was read any more. A newer one, or its deletion, is on its way to
	// the cache.
	ErrStale = errors.New("the revision has changed")
)

// stale marks the errors that mean ErrStale.
func stale(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return err
}

// Contents are the files of a package revision at one version.
type Contents struct {
	// Revision is the object at that version, without the files.
	Revision *kiln.PackageRevision
	Files    map[string]string
}

// ObjectStore keeps contents where the API has them: in spec.resources.
type ObjectStore struct {
	// Live reads from the API server.
	Live client.Reader
	// Writer patches, and lets the cache know what it wrote.
	Writer client.Writer
}

var _ RevisionStore = &ObjectStore{}

// Read implements RevisionStore.
func (s *ObjectStore) Read(ctx context.Context, key types.NamespacedName) (*Contents, error) {
	rev := &kiln.PackageRevision{}
	if err := s.Live.Get(ctx, key, rev); err != nil {
		return nil, fmt.Errorf("read the contents of PackageRevision %s: %w", key, stale(err))
	}
	return contentsOf(rev), nil
}

// Apply implements RevisionStore: one merge patch that carries changed and deleted files only.
func (s *ObjectStore) Apply(ctx context.Context, read *Contents, files map[string]string) (*Contents, error) {
	changes := changesBetween(read.Files, files)
	if len(changes) == 0 {
		return read, nil
	}
	if size := characters(files); len(files) > maxFiles || size > maxCharacters {
		return nil, fmt.Errorf("%w: %d files of %d characters in all, where %d files and %d characters are the most", ErrDoesNotFit, len(files), size, maxFiles, maxCharacters)
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": read.Revision.ResourceVersion, "uid": read.Revision.UID},
		"spec":     map[string]any{"resources": changes},
	})
	if err != nil {
		return nil, fmt.Errorf("write the patch of the contents: %w", err)
	}
	rev := &kiln.PackageRevision{}
	rev.Namespace, rev.Name = read.Revision.Namespace, read.Revision.Name
	err = s.Writer.Patch(ctx, rev, client.RawPatch(types.MergePatchType, patch))
	switch {
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err), tooLargeForStorage(err):
		return nil, fmt.Errorf("%w: %w", ErrDoesNotFit, err)
	case err != nil:
		return nil, fmt.Errorf("apply the contents: %w", stale(err))
	}
	return contentsOf(rev), nil
}

// tooLargeForStorage recognizes the words of etcd, and of the API server's client of it, for an object beyond their limits:
// the CRD counts characters, and they count the bytes of the whole object.
func tooLargeForStorage(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "request is too large") || strings.Contains(text, "message larger than max")
}

// What the CRD allows spec.resources to hold.
const (
	maxFiles      = 5000
	maxCharacters = 1 << 20
)

func contentsOf(rev *kiln.PackageRevision) *Contents {
	c := &Contents{Revision: rev, Files: filesOf(rev)}
	rev.Spec.Resources = nil
	return c
}

// writeStatus patches the status, under the resourceVersion it was computed from: a revision that was deleted and made
// again under the same name starts at generation 1 again, so the generation alone would not tell them apart.
func writeStatus(ctx context.Context, c client.Client, rev *kiln.PackageRevision, status kiln.PackageRevisionStatus) error {
	if equality.Semantic.DeepEqual(rev.Status, status) {
		return nil
	}
	err := patchStatus(ctx, c, rev, status)
	if tooLargeForStorage(err) {
		// The contents leave hardly any room: what they are is more important than how they came about.
		status.PackageConditions = nil
		if status.Render != nil {
			status.Render.Steps = nil
		}
		err = patchStatus(ctx, c, rev, status)
	}
	if err != nil {
		return fmt.Errorf("write the status: %w", stale(err))
	}
	return nil
}

func patchStatus(ctx context.Context, c client.Client, rev *kiln.PackageRevision, status kiln.PackageRevisionStatus) error {
	changed := rev.DeepCopy()
	changed.Status = status
	return c.Status().Patch(ctx, changed, client.MergeFromWithOptions(rev, client.MergeFromWithOptimisticLock{}))
}
