package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

// eachWithDisks is eachOwn for the releases with a snapshotter that makes
// images; with disks the root file systems are the guest's disks.
func eachWithDisks(t *testing.T, disks bool, change func(*harness.Options), run func(context.Context, *testing.T, *harness.Daemon)) {
	t.Helper()
	needVM(t)
	for _, release := range bed.releases {
		if release.ConfigVersion < 3 {
			continue // it has no such snapshotter
		}
		t.Run(release.Name, func(t *testing.T) {
			o := options(release)
			change(&o)
			o.Kata.Extra = fmt.Sprintf("disable_block_device_use = %v\n", !disks) + o.Kata.Extra
			d := startDaemon(t, o)
			t.Cleanup(func() {
				if err := d.Stop(context.Background()); err != nil {
					t.Errorf("stop containerd: %v", err)
				}
			})
			run(d.Test(t, testTimeout, d.Settled), t, d)
		})
	}
}

// rootMount returns the root's entry in the container's list of mounts: source,
// type and options.
func rootMount(ctx context.Context, t *testing.T, c *harness.Container) [3]string {
	t.Helper()
	out := execOut(ctx, t, c, harness.ExecConfig{Args: []string{"cat", "/proc/mounts"}})
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == "/" {
			return [3]string{f[0], f[2], f[3]}
		}
	}
	t.Fatalf("no root among the mounts:\n%s", out)
	return [3]string{}
}

// wantShared fails the test unless the container's root is in the share.
func wantShared(ctx context.Context, t *testing.T, c *harness.Container) {
	t.Helper()
	if root := rootMount(ctx, t, c); root[1] != "virtiofs" {
		t.Errorf("the root is %q, want virtiofs", root)
	}
}

// inSnapshot reads a file of the container's snapshot on the host.
func inSnapshot(ctx context.Context, t *testing.T, d *harness.Daemon, key, name string) string {
	t.Helper()
	mounts, err := d.Client.SnapshotService(d.Snapshotter).Mounts(d.Context(ctx), key)
	if err != nil {
		t.Fatal(err)
	}
	var content []byte
	err = mount.WithTempMount(ctx, mounts, func(root string) (err error) {
		content, err = os.ReadFile(filepath.Join(root, name))
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return string(content)
}

// A root file system in a file is a disk of the guest, and what is written to
// it is in the snapshot.
func TestBlockfileRootfs(t *testing.T) {
	for driver, device := range map[string]string{"virtio-scsi": "/dev/sd", "virtio-blk": "/dev/vd"} {
		t.Run(driver, func(t *testing.T) {
			change := func(o *harness.Options) {
				o.UseBlockfile()
				o.Kata.Extra = fmt.Sprintf("block_device_driver = %q\n", driver)
			}
			eachWithDisks(t, true, change, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				pod := newPod(ctx, t, d)
				c := idle(ctx, t, pod)
				if root := rootMount(ctx, t, c); !strings.HasPrefix(root[0], device) || root[1] != "ext4" || !strings.HasPrefix(root[2], "rw") {
					t.Errorf("the root is %q, want a writable ext4 on %s", root, device)
				}
				wantBlockDevices(ctx, t, c, 2)
				execOut(ctx, t, c, harness.ExecConfig{Args: script("echo kept > /file && chmod 640 /file")})
				keptInSnapshot(ctx, t, d, c, pod)
			})
		})
	}
}

// keptInSnapshot ends the container's task, looks for what it wrote in its
// snapshot, and commits that for another container of the pod.
func keptInSnapshot(ctx context.Context, t *testing.T, d *harness.Daemon, c *harness.Container, pod *harness.Pod) {
	t.Helper()
	if _, err := c.KillAndWait(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Task.Delete(d.Context(ctx)); err != nil {
		t.Fatal(err)
	}
	if got := inSnapshot(ctx, t, d, c.Box.ID(), "file"); got != "kept\n" {
		t.Errorf("the snapshot has %q", got)
	}
	runOver(ctx, t, d, c, pod)
}

// runOver commits the snapshot of a container whose task is gone, and reads
// what it wrote in a container made of that.
func runOver(ctx context.Context, t *testing.T, d *harness.Daemon, c *harness.Container, pod *harness.Pod) {
	t.Helper()
	service, committed := d.Client.SnapshotService(d.Snapshotter), d.NewID("committed")
	// No container names it yet: containerd would remove it at any moment.
	keep := snapshots.WithLabels(map[string]string{"containerd.io/gc.root": time.Now().UTC().Format(time.RFC3339)})
	if err := service.Commit(d.Context(ctx), committed, c.Box.ID(), keep); err != nil {
		t.Fatal(err)
	}
	cfg := harness.ContainerConfig{Name: "over", Parent: committed, Args: script("cat /file; rm /file; ! ls /file")}
	over, err := pod.Add(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := over.Start(ctx); err != nil {
		t.Error(err)
	}
	wantCode(ctx, t, &over.Process, 0)
	if got := over.Out.String(); got != "kept\n" {
		t.Errorf("a container over what was committed has %q", got)
	}
	if err := errors.Join(over.Remove(ctx), c.Box.Delete(d.Context(ctx)), service.Remove(d.Context(ctx), committed)); err != nil {
		t.Error(err)
	}
}

// letGo is how long a guest may still have a disk that the machine no longer
// has: its kernel removes SCSI disks asynchronously.
const letGo = 30 * time.Second

// wantBlockDevices fails the test unless the guest has that many disks.
func wantBlockDevices(ctx context.Context, t *testing.T, c *harness.Container, want int) {
	t.Helper()
	for limit := time.Now().Add(letGo); ; {
		out := execOut(ctx, t, c, harness.ExecConfig{Args: script("ls -d /sys/block/sd* /sys/block/vd* 2>/dev/null || true")})
		got := len(strings.Fields(out))
		if got > want && time.Now().Before(limit) {
			continue
		}
		if got != want {
			t.Errorf("the guest has %d disks, want %d:\n%s", got, want, out)
		}
		return
	}
}

// Disks are attached and detached with their containers.
func TestBlockfileDisksGo(t *testing.T) {
	eachWithDisks(t, true, (*harness.Options).UseBlockfile, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := idle(ctx, t, pod)
		for range 3 {
			other := idle(ctx, t, pod)
			wantBlockDevices(ctx, t, c, 3)
			if err := other.Remove(ctx); err != nil {
				t.Fatal(err)
			}
			wantBlockDevices(ctx, t, c, 2)
		}
	})
}

// A read-only root cannot be written, and its disk is unchanged.
func TestBlockfileReadOnlyRootfs(t *testing.T) {
	eachWithDisks(t, true, (*harness.Options).UseBlockfile, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := add(ctx, t, pod, harness.ContainerConfig{Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{oci.WithRootFSReadonly()}})
		p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: []string{"touch", "/file"}})
		if err != nil || code == 0 || !strings.Contains(p.Err.String(), "Read-only file system") {
			t.Errorf("touch: %v, %d, %s", err, code, p.Err)
		}
	})
}

// The error names a root file system that the guest cannot mount, and its disk
// is detached.
func TestBlockfileBroken(t *testing.T) {
	eachWithDisks(t, true, (*harness.Options).UseBlockfile, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		watcher := idle(ctx, t, pod)
		file := ""
		spoil := func(ctx context.Context, _ oci.Client, c *containers.Container, _ *oci.Spec) error { // containerd has already mounted it
			mounts, err := d.Client.SnapshotService(d.Snapshotter).Mounts(ctx, c.SnapshotKey)
			if err != nil {
				return err
			}
			file = mounts[0].Source
			return os.WriteFile(file, bytes.Repeat([]byte("no ext4 "), mib), 0o600)
		}
		_, err := pod.Add(ctx, harness.ContainerConfig{Name: "broken", Args: []string{"true"}, Spec: []oci.SpecOpts{spoil}})
		if err == nil || !strings.Contains(err.Error(), "mount ext4 /dev/sd") || !strings.Contains(err.Error(), file) {
			t.Errorf("got %v, want an error that names file system and %s", err, file)
		}
		wantBlockDevices(ctx, t, watcher, 2)
	})
}

// With disable_block_device_use the host mounts the file, and flushes it when
// the container is removed: its pod may keep files of it open.
func TestBlockfileShared(t *testing.T) {
	eachWithDisks(t, false, (*harness.Options).UseBlockfile, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		pod := newPod(ctx, t, d)
		c := idle(ctx, t, pod)
		wantShared(ctx, t, c)
		wantBlockDevices(ctx, t, c, 0)
		execOut(ctx, t, c, harness.ExecConfig{Args: script("echo kept > /file")})
		keptInSnapshot(ctx, t, d, c, pod)
	})
}

// Whichever process dies, neither a loop device nor an open file is left, and
// synced data is in the snapshot.
func TestBlockfileDeaths(t *testing.T) {
	for _, disks := range []bool{true, false} {
		for _, kind := range []string{harness.KindVMM, harness.KindShim} {
			t.Run(fmt.Sprintf("%s, disks %v", kind, disks), func(t *testing.T) {
				eachWithDisks(t, disks, (*harness.Options).UseBlockfile, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
					recorder := d.Record(ctx)
					defer recorder.Close()
					pod := newPod(ctx, t, d)
					c := idle(ctx, t, pod)
					execOut(ctx, t, c, harness.ExecConfig{Args: script("echo kept > /file; sync")})
					killOne(t, d, kind)
					awaitLoss(ctx, t, recorder, kind, pod)
					if kind == harness.KindVMM {
						if _, err := c.Task.Delete(d.Context(ctx)); err != nil {
							t.Error(err)
						}
					}
					if got := inSnapshot(ctx, t, d, c.Box.ID(), "file"); got != "kept\n" {
						t.Errorf("the snapshot has %q", got)
					}
				})
			})
		}
	}
}

// awaitLoss waits until containerd has noticed that its pod's VMM or shim was
// killed, and has cleaned up after a dead shim.
func awaitLoss(ctx context.Context, t *testing.T, recorder *harness.Recorder, kind string, pod *harness.Pod) {
	t.Helper()
	for _, c := range append([]*harness.Container{pod.Sandbox}, pod.Services...) {
		topics := []string{"exit"}
		if kind == harness.KindShim {
			topics = append(topics, "delete")
		}
		for _, topic := range topics {
			if _, err := recorder.Await(ctx, c.Box.ID(), topic); err != nil {
				t.Error(err)
			}
		}
	}
}
