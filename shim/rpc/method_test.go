package rpc

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/types/known/emptypb"
)

// An error reaches the engine with its kind, and with the words and lines that it
// had here.
func TestErrorsComeAsTheyAre(t *testing.T) {
	cause := errors.New("cause")
	for _, err := range []error{
		fmt.Errorf("find configuration: %w: %w", cause, errdefs.ErrInvalidArgument),
		fmt.Errorf("no such thing: %w", errdefs.ErrNotFound),
		errors.Join(fmt.Errorf("first: %w", errdefs.ErrAlreadyExists), cause),
		fmt.Errorf("of no kind: %w", cause),
	} {
		call := Method(func(context.Context, *emptypb.Empty) (*emptypb.Empty, error) { return nil, err })
		_, sent := call(t.Context(), func(any) error { return nil })
		got := errgrpc.ToNative(sent)
		if got == nil || got.Error() != err.Error() || !errors.Is(errdefs.Resolve(got), errdefs.Resolve(err)) && !errors.Is(errdefs.Resolve(err), cause) {
			t.Errorf("%q became %q", err, got)
		}
	}
}
