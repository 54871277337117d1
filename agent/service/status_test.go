package service

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
)

// The status names the storage in its details, not only in its message.
func TestStatusNamesTheStorage(t *testing.T) {
	mounter := guest.NewMounter(nil)
	failure := mounter.Mount(context.Background(), []*api.Storage{{Driver: "none", Target: "/run/x"}})
	st, _ := status.FromError(statusOf(fmt.Errorf("create: %w", errors.Join(failure, errors.New("other")))))
	if st.Code() != codes.InvalidArgument {
		t.Errorf("code %v", st.Code())
	}
	var targets []string
	for _, detail := range st.Details() {
		if failed, ok := detail.(*api.FailedStorage); ok {
			targets = append(targets, failed.GetTarget())
		}
	}
	if len(targets) != 1 || targets[0] != "/run/x" {
		t.Errorf("the status names %q", targets)
	}
	if st, _ := status.FromError(statusOf(errdefs.ErrNotFound)); st.Code() != codes.NotFound || len(st.Details()) != 0 {
		t.Errorf("another error: %v", st)
	}
}
