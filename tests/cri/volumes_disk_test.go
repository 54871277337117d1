package cri

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume/direct"
)

// An emptyDir on the host's disk is the host's directory.
func TestEmptyDir(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		dir := k.fsGroup(k.volume("empty-dir", "scratch"), 123)
		part := k.subPath(dir, "part", 0)
		p := runp(ctx, t, e, "emptydir")
		id := p.start(ctx, t, forever, as(1001, 123, with(dir+":/scratch", part+":/part")))
		p.sh(ctx, t, id, "echo word > /scratch/file; echo part > /part/file")
		for name, want := range map[string]string{"file": "word\n", "part/file": "part\n"} {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
				t.Errorf("%s on the host: %q, %v", name, got, err)
			}
		}
		if fstype, _, _ := p.mounted(ctx, t, id, "/scratch"); fstype != "virtiofs" {
			t.Errorf("/scratch is a %s", fstype)
		}
	})
}

// An emptyDir can be a disk of the guest's, whose file the kubelet counts and
// removes.
func TestEmptyDirOnADisk(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e, `runtime.emptydir_mode = "block-plain"`)
		dir := k.fsGroup(k.volume("empty-dir", "scratch"), 123)
		part := k.subPath(dir, "part", 0)
		p := runp(ctx, t, e, "emptydisk")
		// The first container makes the disk.
		writer := p.create(ctx, t, forever, as(1001, 123, with(dir+":/scratch", part+":/part")))
		reader := p.create(ctx, t, forever, with(dir+":/scratch:ro"))
		p.startAll(ctx, t, writer, reader)
		for _, id := range []string{writer, reader} {
			if fstype, _, device := p.mounted(ctx, t, id, "/scratch"); fstype != "ext4" || !strings.HasPrefix(device, "/dev/") {
				t.Errorf("/scratch is a %s on %s", fstype, device)
			}
		}
		if got := p.sh(ctx, t, writer, "ls /scratch; stat -c %g:%a /scratch"); got != "part\n123:2777" {
			t.Errorf("at first: %q", got)
		}
		p.sh(ctx, t, writer, "echo word > /scratch/file; echo part > /part/file")
		if got := p.sh(ctx, t, reader, "cat /scratch/file /scratch/part/file; stat -c %u:%g /scratch/file"); got != "word\npart\n1001:123" {
			t.Errorf("in the other container: %q", got)
		}
		entries, err := os.ReadDir(dir)
		k.must(err)
		if len(entries) != 2 || entries[0].Name() != "disk.img" {
			t.Errorf("on the host: %v, want disk.img and the kubelet's directory", entries)
		}
		// The kubelet recreates a pod's sandbox when it has ended.
		k.must(e.RemovePods(ctx))
		p = runp(ctx, t, e, "emptydisk2")
		if got := p.sh(ctx, t, p.start(ctx, t, forever, with(dir+":/scratch:ro")), "cat /scratch/file"); got != "word" {
			t.Errorf("in the next sandbox: %q", got)
		}
	})
}

// A volume whose driver assigned a disk to it is that disk's file system.
func TestDirectVolume(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		for name, device := range map[string]string{"file": k.disk("direct.img"), "loop": k.loop(k.disk("loop.img"))} {
			path := k.mkdir(filepath.Join(k.volume("csi", name), "mount"))
			k.assign(path, `{"volume-type": "block", "device": "`+device+`", "fstype": "ext4", "options": ["noatime"], "metadata": {"fsGroup": "123"}}`)
			part := k.subPath(path, "a/part", 0)
			p := runp(ctx, t, e, "direct"+name)
			id := p.start(ctx, t, forever, as(1001, 123, with(path+":/data", part+":/part")))
			if fstype, options, source := p.mounted(ctx, t, id, "/data"); fstype != "ext4" || !strings.Contains(options, "noatime") || !strings.HasPrefix(source, "/dev/") {
				t.Errorf("%s: /data is a %s on %s with %s", name, fstype, source, options)
			}
			if got := p.sh(ctx, t, id, "echo word > /data/file; stat -c %g /data/file; chmod 600 /data/file; echo part > /part/file; cat /data/a/part/file"); got != "123\npart" {
				t.Errorf("%s: the file's group, and what is in the part: %q", name, got)
			}
			p.do(ctx, t, "stop", id)
			p.do(ctx, t, "rm", id)
			// The host gets the disk back while the pod lives on.
			checkOnDisk(ctx, t, device, "word\n")
			again := p.start(ctx, t, forever, with(path+":/data:ro"))
			// The group is given once for the pod: what is private stays so.
			if got := p.sh(ctx, t, again, "stat -c '%a %g' /data/file; cat /data/file; touch /data/new 2>/dev/null || echo read-only"); got != "600 123\nword\nread-only" {
				t.Errorf("%s: again: %q", name, got)
			}
			p.sh(ctx, t, p.start(ctx, t, forever, with(path+":/data")), "echo more > /data/file")
			k.must(e.RemovePods(ctx))
			checkOnDisk(ctx, t, device, "more\n")
		}
	})
}

// checkOnDisk reads the file of a disk that no machine has, without the help of
// a journal: it was unmounted.
func checkOnDisk(ctx context.Context, t *testing.T, device, want string) {
	t.Helper()
	debugfs := mustDo(t)(findProgram("debugfs"))
	out, err := exec.CommandContext(ctx, debugfs, "-R", "cat /file", device).Output()
	if err != nil || string(out) != want {
		t.Errorf("%s has %q, %v; want %q", device, out, err, want)
	}
}

// assign runs kata-runtime direct-volume, as drivers do.
func (k *kubelet) assign(path, info string) {
	k.t.Helper()
	program := filepath.Join(bed.layout.Bin(), "kata-runtime")
	if out, err := exec.CommandContext(k.t.Context(), program, "direct-volume", "add", "--volume-path", path, "--mount-info", info).CombinedOutput(); err != nil {
		k.t.Fatalf("direct-volume add: %v: %s", err, out)
	}
	k.undo = append(k.undo, func() error {
		err := exec.Command(program, "direct-volume", "remove", "--volume-path", path).Run()
		// Empty directories are not a leak, but the strict check of the host
		// reports them.
		os.Remove(string(direct.Default))
		os.Remove(filepath.Dir(string(direct.Default)))
		return err
	})
}

// An invalid assignment is refused with the reason.
func TestDirectVolumeRefused(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		path := k.mkdir(filepath.Join(k.volume("csi", "pv"), "mount"))
		none := filepath.Join(k.dir, "none.img")
		k.assign(path, `{"device": "`+none+`", "fstype": "ext4"}`)
		p := runp(ctx, t, e, "refused")
		if got := p.refused(ctx, t, with(path+":/data")); !strings.Contains(got, none) {
			t.Errorf("the error is: %s", got)
		}
		k.assign(path, `{"device": "`+k.write(none, strings.Repeat("no file system", 4096))+`", "fstype": "ext4"}`)
		if got := p.refused(ctx, t, with(path+":/data")); !strings.Contains(got, "mount ext4") || !strings.Contains(got, path) && !strings.Contains(got, none) {
			t.Errorf("the error is: %s", got)
		}
		p.start(ctx, t, forever, nil)
	})
}

// A raw block volume is a device node (Kubernetes' volumeDevices).
func TestBlockVolume(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		file := k.write(filepath.Join(k.dir, "raw.img"), "")
		k.must(os.Truncate(file, 16<<20))
		device := k.loop(file)
		devices := map[string]any{"devices": []any{map[string]any{"container_path": "/dev/data", "host_path": device, "permissions": "rwm"}}}
		p := runp(ctx, t, e, "block")
		first, second := p.start(ctx, t, forever, devices), p.start(ctx, t, forever, devices)
		p.sh(ctx, t, first, "test -b /dev/data && printf word | dd of=/dev/data bs=4k seek=3 conv=sync,fsync 2>/dev/null")
		if got := p.sh(ctx, t, second, "dd if=/dev/data bs=4k skip=3 count=1 2>/dev/null | head -c 4"); got != "word" {
			t.Errorf("in the other container: %q", got)
		}
		k.must(e.RemovePods(ctx))
		out, err := exec.CommandContext(ctx, "dd", "if="+device, "bs=4k", "skip=3", "count=1", "iflag=fullblock").Output()
		if err != nil || !strings.HasPrefix(string(out), "word") {
			t.Errorf("on the host: %.4q, %v", out, err)
		}
	})
}
