package jobcontroller

import (
	"context"
	"errors"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kiln "github.com/kiln-dev/kiln/api/v1alpha1"
)

// errPatchOnly is what an Update of a PackageRevision comes to.
var errPatchOnly = errors.New("PackageRevisions are patched only: the cache keeps no contents, and an Update from it would erase them")

// NewPatchOnlyClient is a client.NewClientFunc whose clients refuse to Update PackageRevisions.
func NewPatchOnlyClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	return patchOnlyClient{c}, nil
}

type patchOnlyClient struct{ client.Client }

func (c patchOnlyClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if _, ok := obj.(*kiln.PackageRevision); ok {
		return errPatchOnly
	}
	return c.Client.Update(ctx, obj, opts...)
}

func (c patchOnlyClient) Status() client.SubResourceWriter {
	return patchOnlyStatus{c.Client.Status()}
}

type patchOnlyStatus struct{ client.SubResourceWriter }

func (w patchOnlyStatus) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	if _, ok := obj.(*kiln.PackageRevision); ok {
		return errPatchOnly
	}
	return w.SubResourceWriter.Update(ctx, obj, opts...)
}
