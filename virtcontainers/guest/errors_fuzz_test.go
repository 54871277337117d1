package guest

import (
	"errors"
	"testing"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/agent/api"
)

// FuzzErr makes errors of any status that a guest answers with: they stay errors, and
// within their bound.
func FuzzErr(f *testing.F) {
	detail, err := anypb.New(&api.FailedStorage{Target: "/run/x"})
	if err != nil {
		f.Fatal(err)
	}
	for _, st := range []*spb.Status{{Code: 5, Message: "gone"}, {Code: 3, Details: []*anypb.Any{detail, detail, {TypeUrl: "x/y", Value: []byte{1}}}}} {
		seed, err := proto.Marshal(st)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		var st spb.Status
		if proto.Unmarshal(answer, &st) != nil || st.Code == 0 {
			return
		}
		err := Err(status.ErrorProto(&st))
		if err == nil {
			t.Fatalf("status %v is no error", &st)
		}
		if size := len(err.Error()); size > 4*maxError {
			t.Errorf("an error of %d bytes", size)
		}
		var failed *StorageError
		if errors.As(err, &failed) && len(failed.Target) > maxError {
			t.Errorf("a storage of %d bytes", len(failed.Target))
		}
	})
}
