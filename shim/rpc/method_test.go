package rpc

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
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

// The name of a file in an error is any bytes; an answer must be UTF-8.
func TestErrorsAreUTF8(t *testing.T) {
	call := Method(func(context.Context, *emptypb.Empty) (*emptypb.Empty, error) {
		return nil, fmt.Errorf("open /a\xff\xfeb: %w", errdefs.ErrNotFound)
	})
	_, sent := call(t.Context(), func(any) error { return nil })
	if _, err := proto.Marshal(status.Convert(sent).Proto()); err != nil {
		t.Errorf("ttrpc cannot send it: %v", err)
	}
	if got := errgrpc.ToNative(sent); !errdefs.IsNotFound(got) || got.Error() != "open /a?b: not found" {
		t.Errorf("it became %q", got)
	}
}
