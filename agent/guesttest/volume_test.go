package guesttest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	taskapi "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
)

// A file system grows below a container that writes to it.
func TestGuestVolumeGrows(t *testing.T) {
	m := guestOnly(t)
	for _, s := range []*api.Storage{
		{Driver: "virtio-blk", Source: "01/0b", Fstype: "ext4"},
		{Driver: "scsi", Source: "01/04:5:0", Fstype: "xfs"},
	} {
		if s.Fstype == "xfs" && os.Getenv(xfsKey) != "true" {
			t.Log("xfs is not tested: the host has no mkfs.xfs")
			continue
		}
		t.Run(s.Fstype, func(t *testing.T) { m.grows(t, s) })
	}
}

func (m *machine) grows(t *testing.T, s *api.Storage) {
	t.Helper()
	id := "grow-" + s.Fstype
	s.Target = diskDir + id
	if _, err := m.guest.GrowVolume(t.Context(), &api.GrowVolumeRequest{Target: s.Target, DiskBytes: 1}); !errdefs.IsNotFound(errgrpc.ToNative(err)) {
		t.Errorf("before it is mounted: %v", err)
	}
	// It writes the file again and again, and fails when it cannot.
	m.startOn(t, id, s, "while dd if=/dev/zero of=/data/busy bs=64k count=16 2>/tmp/err && sync /data/busy; do :; done")
	before := m.volumeStats(t, s.Target)
	if before.GetTotalBytes() > smallMiB<<20 || before.GetTotalBytes() < smallMiB<<19 || before.GetUsedBytes() > before.GetTotalBytes() {
		t.Errorf("before: %v", before)
	}
	wants("larger " + s.Fstype)
	grow := &api.GrowVolumeRequest{Target: s.Target, DiskBytes: grownMiB << 20}
	for range 2 { // as large already
		if _, err := m.guest.GrowVolume(t.Context(), grow); err != nil {
			t.Fatal(err)
		}
	}
	after := m.volumeStats(t, s.Target)
	if after.GetTotalBytes() > grownMiB<<20 || after.GetTotalBytes() < grownMiB<<20/10*9 || after.GetTotalInodes() <= before.GetTotalInodes() {
		t.Errorf("after: %v, before %v", after, before)
	}
	t.Logf("%s: %d to %d MiB", s.Fstype, before.GetTotalBytes()>>20, after.GetTotalBytes()>>20)
	const mib = smallMiB + 64
	large := fmt.Sprintf("fallocate -l %dm /data/large && dd if=/dev/zero of=/data/large bs=1M count=1 seek=%d conv=notrunc,fsync 2>/dev/null; "+
		"stat -c %%s /data/large; rm /data/large; ls -d /proc/1", mib, mib-1)
	if r := m.exec(t, id, "large", process(large)); r.out != fmt.Sprintf("%d\n/proc/1\n", mib<<20) {
		t.Errorf("a file larger than the disk was: %+v", r)
	}
	grow.DiskBytes++
	if _, err := m.guest.GrowVolume(t.Context(), grow); err == nil || !strings.Contains(err.Error(), "want 2147483649") {
		t.Errorf("a disk that does not grow: %v", err)
	}
}

func (m *machine) volumeStats(t *testing.T, target string) *api.VolumeStatsResponse {
	t.Helper()
	stats, err := m.guest.VolumeStats(t.Context(), &api.VolumeStatsRequest{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	return stats
}

// startOn starts a container with a storage at /data, until the test ends.
func (m *machine) startOn(t *testing.T, id string, s *api.Storage, script string) {
	t.Helper()
	spec := shell(script)
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/data", Type: "bind", Source: s.Target, Options: []string{"bind"}})
	if err := m.createQuiet(t, id, withSpec(t, spec, &api.ContainerConfig{Storages: []*api.Storage{s}})); err != nil {
		t.Fatal(err)
	}
	if _, err := m.task.Start(t.Context(), &taskapi.StartRequest{ID: id}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		if _, err := m.task.Kill(ctx, &taskapi.KillRequest{ID: id, Signal: 9}); err != nil {
			t.Errorf("the container has ended, it could not write: %v", err)
		}
		_, _ = m.task.Wait(ctx, &taskapi.WaitRequest{ID: id})
		if _, err := m.task.Delete(ctx, &taskapi.DeleteRequest{ID: id}); err != nil {
			t.Error(err)
		}
	})
}

// createQuiet makes a container without streams.
func (m *machine) createQuiet(t *testing.T, id string, config *api.ContainerConfig) error {
	t.Helper()
	_, err := m.task.Create(t.Context(), &taskapi.CreateTaskRequest{ID: id, Options: packedConfig(t, config)})
	return errgrpc.ToNative(err)
}
