package service

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/agent/api"
)

// The clock is not set to a time that is missing.
func TestSetClockToNothing(t *testing.T) {
	pod, _ := testPod(t)
	for _, req := range []*api.SetClockRequest{{}, {HostTime: &timestamppb.Timestamp{Seconds: 1 << 60}}} {
		if _, err := (guestService{pod: pod}).SetClock(t.Context(), req); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", req, err)
		}
	}
}
