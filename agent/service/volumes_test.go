package service

import (
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
)

func TestVolumes(t *testing.T) {
	pod, _, _ := diskPod(t)
	s, ctx := guestService{pod: pod}, t.Context()
	target := pod.config.RunDir + "/s/1"
	if _, err := s.VolumeStats(ctx, &api.VolumeStatsRequest{Target: target}); !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("stats of what is not mounted: %v", err)
	}
	if _, err := s.GrowVolume(ctx, &api.GrowVolumeRequest{Target: target, DiskBytes: 7}); !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("grow what is not mounted: %v", err)
	}
	if err := add(ctx, pod, "s/1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GrowVolume(ctx, &api.GrowVolumeRequest{Target: target, DiskBytes: 7}); err != nil {
		t.Error(err)
	}
	if stats, err := s.VolumeStats(ctx, &api.VolumeStatsRequest{Target: target}); err != nil || stats.GetTotalBytes() != 7 {
		t.Errorf("%v, %v", stats, err)
	}
}

// A guest without its pod has no volumes.
func TestVolumesBeforeTheSetup(t *testing.T) {
	pod, _ := testPod(t)
	pod.stage = bare
	s := guestService{pod: pod}
	if _, err := s.VolumeStats(t.Context(), &api.VolumeStatsRequest{Target: "/x"}); !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) {
		t.Errorf("stats: %v", err)
	}
	if _, err := s.GrowVolume(t.Context(), &api.GrowVolumeRequest{Target: "/x"}); !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) {
		t.Errorf("grow: %v", err)
	}
}
