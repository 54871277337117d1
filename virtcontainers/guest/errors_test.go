package guest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

func storageDetail(t *testing.T, target string) *anypb.Any {
	t.Helper()
	detail, err := anypb.New(&api.FailedStorage{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	return detail
}

// The storage that a status names becomes a typed error of the same kind and
// text; a status that is too large names none.
func TestErrNamesTheStorage(t *testing.T) {
	broken := &anypb.Any{TypeUrl: "type.googleapis.com/" + string(proto.MessageName(&api.FailedStorage{})), Value: []byte{0xff}}
	for name, test := range map[string]struct {
		details []*anypb.Any
		want    string
	}{
		"none":         {nil, ""},
		"one":          {[]*anypb.Any{storageDetail(t, "/run/a")}, "/run/a"},
		"two":          {[]*anypb.Any{storageDetail(t, "/run/a"), storageDetail(t, "/run/b")}, "/run/a"},
		"broken first": {[]*anypb.Any{broken, storageDetail(t, "/run/b")}, "/run/b"},
		"too large":    {[]*anypb.Any{storageDetail(t, strings.Repeat("a", 20<<10))}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer := status.New(codes.NotFound, "no disk").Proto()
			answer.Details = test.details
			err := guest.Err(status.ErrorProto(answer))
			if !errdefs.IsNotFound(err) {
				t.Errorf("the error has lost its kind: %v", err)
			}
			var failed *guest.StorageError
			if named := errors.As(err, &failed); named != (test.want != "") || named && failed.Target != test.want {
				t.Errorf("the error names %+v, want %q", failed, test.want)
			}
			if test.want != "" && err.Error() != "no disk" {
				t.Errorf("the error is %q", err)
			}
		})
	}
}

// An error that wraps several in the guest has the same text on the host, on one
// line.
func TestErrHasItsTextOnce(t *testing.T) {
	sent := fmt.Errorf("create: %w: %w", errors.New("no such action"), errdefs.ErrInvalidArgument)
	err := guest.Err(errgrpc.ToGRPC(sent))
	if !errdefs.IsInvalidArgument(err) || err.Error() != sent.Error() {
		t.Errorf("the error is %q, want %q", err, sent)
	}
}
