package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
)

const (
	// diskBytes is the size of disks that (*kubelet).disk makes, grownBytes
	// their size after growing.
	diskBytes  = 64 << 20
	grownBytes = 256 << 20
)

// A direct volume grows below a container that writes to it: a file by itself,
// a device when the host has grown it, on each bus.
func TestDirectVolumeGrows(t *testing.T) {
	for _, bus := range []string{"virtio-scsi", "virtio-blk"} {
		t.Run(bus, func(t *testing.T) {
			within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
				k := newKubelet(t, e, fmt.Sprintf("hypervisor.qemu.block_device_driver = %q", bus))
				file := k.disk("file.img")
				k.grows(ctx, "file", file, func() {})
				backing := k.disk("loop.img")
				device := k.loop(backing)
				k.grows(ctx, "loop", device, func() {
					if _, err := k.directVolume(ctx, "resize", "--volume-path", device, "--size", strconv.Itoa(grownBytes)); err == nil ||
						!strings.Contains(err.Error(), "grow the device first") {
						t.Errorf("a device that was not grown: %v", err)
					}
					k.must(os.Truncate(backing, grownBytes))
					losetup := mustDo(t)(findProgram("losetup"))
					k.must(exec.CommandContext(ctx, losetup, "--set-capacity", device).Run())
				})
			})
		})
	}
}

// grows grows the volume on a device; before is done first.
func (k *kubelet) grows(ctx context.Context, name, device string, before func()) {
	t := k.t
	path := k.mkdir(filepath.Join(k.volume("csi", name), "mount"))
	k.assign(path, `{"volume-type": "block", "device": "`+device+`", "fstype": "ext4"}`)
	p := runp(ctx, t, k.e, "grow"+name)
	id := p.start(ctx, t, []string{"sh", "-c", "while dd if=/dev/zero of=/data/busy bs=64k count=16 2>/dev/null && sync; do :; done"}, with(path+":/data"))
	if total := k.volumeBytes(ctx, path); total > diskBytes || total < diskBytes/2 {
		t.Errorf("%s: %d bytes", name, total)
	}
	before()
	if out, err := k.directVolume(ctx, "resize", "--volume-path", path, "--size", strconv.Itoa(grownBytes)); err != nil || out != fmt.Sprintf("%s: %d bytes\n", path, grownBytes) {
		t.Errorf("%s: resize: %q, %v", name, out, err)
	}
	if total := k.volumeBytes(ctx, path); total > grownBytes || total < grownBytes/10*9 {
		t.Errorf("%s: %d bytes after its growth", name, total)
	}
	if got := p.sh(ctx, t, id, "dd if=/dev/zero of=/data/large bs=1M count=128 2>/dev/null; stat -c %s /data/large; echo word > /data/file"); got != strconv.Itoa(128<<20) {
		t.Errorf("%s: a file larger than the disk was: %q", name, got)
	}
	if strings.HasSuffix(device, ".img") {
		if _, err := k.directVolume(ctx, "resize", "--volume-path", path, "--size", strconv.Itoa(diskBytes)); err == nil || !strings.Contains(err.Error(), "does not shrink") {
			t.Errorf("%s: shrink: %v", name, err)
		}
	}
	if state := p.awaitState(ctx, t, id, "CONTAINER_RUNNING"); state != 0 {
		t.Errorf("%s: the writer ended with %d", name, state)
	}
	p.do(ctx, t, "stop", "--timeout", "1", id)
	p.do(ctx, t, "rm", id)
	if _, err := k.directVolume(ctx, "stats", "--volume-path", path); err == nil {
		t.Errorf("%s: stats of what no container has", name)
	}
	checkOnDisk(ctx, t, device, "word\n")
	fsck := mustDo(t)(findProgram("e2fsck"))
	if out, err := exec.CommandContext(ctx, fsck, "-fn", device).CombinedOutput(); err != nil {
		t.Errorf("%s: the grown file system: %v: %s", name, err, out)
	}
	k.must(k.e.RemovePods(ctx))
}

// directVolume runs kata-runtime direct-volume and returns its output.
func (k *kubelet) directVolume(ctx context.Context, args ...string) (string, error) {
	program := filepath.Join(bed.layout.Bin(), "kata-runtime")
	cmd := exec.CommandContext(ctx, program, append([]string{"direct-volume"}, args...)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, errs.String())
	}
	return out.String(), nil
}

// volumeBytes returns the size of a volume's file system from its statistics.
func (k *kubelet) volumeBytes(ctx context.Context, path string) uint64 {
	k.t.Helper()
	out, err := k.directVolume(ctx, "stats", "--volume-path", path)
	var stats struct {
		Usage []struct{ Total, Used, Available, Unit uint64 }
	}
	if err == nil {
		err = json.Unmarshal([]byte(out), &stats)
	}
	k.must(err)
	if len(stats.Usage) != 2 || stats.Usage[0].Unit != 1 || stats.Usage[1].Unit != 2 || stats.Usage[0].Used == 0 || stats.Usage[1].Total == 0 {
		k.t.Errorf("stats: %s", out)
	}
	return stats.Usage[0].Total
}

// A raw block volume grows in a running container when the host has grown its device, on
// each bus.
func TestBlockVolumeGrows(t *testing.T) {
	for _, bus := range []string{"virtio-scsi", "virtio-blk"} {
		t.Run(bus, func(t *testing.T) {
			within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
				k := newKubelet(t, e, fmt.Sprintf("hypervisor.qemu.block_device_driver = %q", bus))
				backing := k.write(filepath.Join(k.dir, "raw.img"), "")
				k.must(os.Truncate(backing, diskBytes))
				device := k.loop(backing)
				p := runp(ctx, t, e, "blockgrows")
				id := p.start(ctx, t, forever, map[string]any{
					"devices": []any{map[string]any{"container_path": "/dev/data", "host_path": device, "permissions": "rwm"}},
				})
				k.must(os.Truncate(backing, grownBytes))
				k.must(exec.CommandContext(ctx, mustDo(t)(findProgram("losetup")), "--set-capacity", device).Run())
				// The last 1 MiB can be read once the guest has all of the device.
				line := fmt.Sprintf("for i in $(seq 60); do dd if=/dev/data bs=1M skip=%d count=1 2>/dev/null | wc -c | grep -qx 1048576 && echo grown && break; sleep 1; done",
					grownBytes>>20-1)
				if got := p.sh(ctx, t, id, line); got != "grown" {
					t.Errorf("the device does not grow: %q", got)
				}
				k.must(e.RemovePods(ctx))
			})
		})
	}
}
