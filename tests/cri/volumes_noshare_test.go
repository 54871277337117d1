package cri

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/harness"
)

// withoutShare runs a test under its own containerd, whose containers have
// disks as root file systems and whose pods share no file with the host.
func withoutShare(t *testing.T, run func(context.Context, *testing.T, *env.Env, *kubelet)) {
	t.Helper()
	if !bed.runtime.VM {
		t.Skipf("%s shares the host's files", bed.runtime.Name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), walkTimeout)
	t.Cleanup(cancel)
	e, err := env.Start(ctx, env.Options{Layout: bed.layout, Runtime: bed.runtime, Adapt: useBlockfile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(e.Daemon.LogTail(60))
		}
		// It fails if anything is left on the host.
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	run(ctx, t, e, newKubelet(t, e, `hypervisor.qemu.shared_fs = "none"`, `hypervisor.qemu.disable_block_device_use = false`))
}

// unpackToBlockfile makes CRI unpack images into files: by default its pulls
// use the transfer service, which supports only other snapshotters (containerd,
// plugins/transfer/plugin_defaults_linux.go).
const unpackToBlockfile = `
[[plugins.'io.containerd.transfer.v1.local'.unpack_config]]
  platform = 'linux/amd64'
  snapshotter = 'blockfile'
  differ = 'walking'
`

// useBlockfile gives containers disks as root file systems.
func useBlockfile(o *harness.Options) {
	o.UseBlockfile()
	before := o.Prepare
	o.Prepare = func(d *harness.Daemon) (string, error) {
		text, err := before(d)
		return text + unpackToBlockfile, err
	}
}

// Without a share everything is a disk, a copy or the guest's memory.
func TestWithoutShare(t *testing.T) {
	withoutShare(t, func(ctx context.Context, t *testing.T, e *env.Env, k *kubelet) {
		p := runp(ctx, t, e, "noshare")
		checkConfigMap(ctx, t, k, p)
		scratch := k.fsGroup(k.volume("empty-dir", "scratch"), 123)
		cache := k.memory("cache", "8m")
		id := p.start(ctx, t, forever, as(1001, 123, with(scratch+":/scratch", cache+":/cache")))
		for path, want := range map[string]string{"/": "ext4", "/scratch": "ext4", "/cache": "tmpfs", "/etc/hosts": "tmpfs"} {
			if fstype, _, _ := p.mounted(ctx, t, id, path); fstype != want {
				t.Errorf("%s is a %s, want %s", path, fstype, want)
			}
		}
		if got := p.sh(ctx, t, id, "echo word > /scratch/file; cat /scratch/file; grep -c localhost /etc/hosts; grep virtiofs /proc/mounts || true"); got != "word\n1" && got != "word\n2" {
			t.Errorf("in the container: %q", got)
		}
		if _, err := os.Stat(scratch + "/disk.img"); err != nil {
			t.Error(err)
		}
	})
}

// A container's termination message, as much of it as the kubelet reads, is on
// the host when its exit is reported.
func TestWithoutShareTerminationMessage(t *testing.T) {
	withoutShare(t, func(ctx context.Context, t *testing.T, e *env.Env, k *kubelet) {
		p := runp(ctx, t, e, "message")
		for script, want := range map[string]string{
			"echo out of cheese > /dev/termination-log; exit 3": "out of cheese\n",
			"seq 100000 > /dev/termination-log; exit 3":         "100000\n",
			"exit 3": "",
		} {
			log := k.write(filepath.Join(k.mkdir(filepath.Join(k.pod, "containers/c")), "0001"), "")
			k.must(os.Chmod(log, 0o666))
			id := p.start(ctx, t, []string{"sh", "-c", script}, as(1001, 123, with(log+":/dev/termination-log")))
			if code := p.awaitState(ctx, t, id, "CONTAINER_EXITED"); code != 3 {
				t.Errorf("%s: exit code %d", script, code)
			}
			got, err := os.ReadFile(log)
			if err != nil || len(got) > 4096 || !strings.HasSuffix(string(got), want) || want == "" && len(got) > 0 {
				t.Errorf("%s: %d bytes on the host, %v; they end with %q", script, len(got), err, got[max(0, len(got)-40):])
			}
		}
	})
}

// What cannot be copied is refused with its name, its size and what to do.
func TestWithoutShareRefused(t *testing.T) {
	withoutShare(t, func(ctx context.Context, t *testing.T, e *env.Env, k *kubelet) {
		large := k.write(filepath.Join(k.dir, "large"), "")
		k.must(os.Truncate(large, 64<<20))
		socket := filepath.Join(k.dir, "socket")
		l, err := net.ListenPacket("unixgram", socket)
		k.must(err)
		defer l.Close()
		p := runp(ctx, t, e, "refused")
		for source, want := range map[string][]string{large: {"67108864", "shared_fs"}, socket: {"SOCK_DGRAM"}} {
			got := p.refused(ctx, t, with(source+":/mnt"))
			for _, word := range append(want, source) {
				if !strings.Contains(got, word) {
					t.Errorf("the error lacks %q: %s", word, got)
				}
			}
		}
		p.start(ctx, t, forever, nil)
	})
}
