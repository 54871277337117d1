package containerd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// The containers of a pod have one emptyDir in common: one connects to a UNIX socket
// that another has made in it, as programs and their sidecars do. It outlives the
// container that had it first.
func TestSocketInEmptyDir(t *testing.T) {
	needVM(t)
	kubelet := t.TempDir()
	configure := func(o *harness.Options) { o.Kata.Extra = fmt.Sprintf("[runtime]\nkubelet_root_dir = %q\n", kubelet) }
	newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir := filepath.Join(kubelet, "pods/uid/volumes/kubernetes.io~empty-dir/run")
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		buildProbe(t, dir)
		pod := newPod(ctx, t, d)
		with := func(name, mode string) *harness.Container {
			return add(ctx, t, pod, harness.ContainerConfig{Name: name, Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{
				{Type: "bind", Source: dir, Destination: "/v", Options: []string{"rbind", "rprivate", mode}},
			})}})
		}
		first, server, client, reader := with("first", "rw"), with("server", "rw"), with("client", "rw"), with("reader", "ro")
		if err := first.Remove(ctx); err != nil {
			t.Fatal(err)
		}
		pod.Services = pod.Services[1:]
		execOut(ctx, t, server, harness.ExecConfig{Args: script("(/v/probe serve unix:///v/sock >/v/said 2>&1 </dev/null &); until grep -q ready /v/said; do sleep 1; done")})
		execOut(ctx, t, client, harness.ExecConfig{Args: script("/v/probe check 'unix:///v/sock?bytes=1000' && echo written >/v/file")})
		if got := execOut(ctx, t, reader, harness.ExecConfig{Args: script("cat /v/file; echo x 2>/dev/null >/v/file || echo refused")}); got != "written\nrefused\n" {
			t.Errorf("a container that may only read: %q", got)
		}
		if data, err := os.ReadFile(filepath.Join(dir, "file")); string(data) != "written\n" {
			t.Errorf("on the host: %q, %v", data, err)
		}
	})
}

// A guest that takes longer than usual, as on a busy host, still gets the files of a
// volume: the creation of a container may take create_container_timeout.
func TestSlowCopyOfVolume(t *testing.T) {
	needVM(t)
	kubelet := t.TempDir()
	configure := func(o *harness.Options) { o.Kata.Extra = fmt.Sprintf("[runtime]\nkubelet_root_dir = %q\n", kubelet) }
	newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		const stopped = 15 * time.Second
		dir := filepath.Join(kubelet, "pods/uid/volumes/kubernetes.io~projected/token")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "token"), []byte("word\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		pod := newPod(ctx, t, d)
		machine := qemuOf(t, d)
		if err := unix.Kill(machine, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		going := make(chan error, 1)
		time.AfterFunc(stopped, func() { going <- unix.Kill(machine, unix.SIGCONT) })
		c := mounting(ctx, t, pod, "reader", dir, "ro")
		if err := <-going; err != nil {
			t.Fatal(err)
		}
		if got := works(ctx, t, c, "cat /v/token"); got != "word\n" {
			t.Errorf("the file of the volume: %q", got)
		}
	})
}

// pairScript has a program answer in a file of /v, which it has locked.
const pairScript = ": >/v/pair; (/v/probe file answer /v/pair >/tmp/said 2>&1 </dev/null &); for i in $(seq 20); do grep -q ready /tmp/said && exit 0; sleep 1; done; cat /tmp/said; exit 1"

// The containers of a pod that mount one directory of the host have one file system of
// it: UNIX sockets, FIFOs, locks and shared mappings of one are the others', also where
// one may only read, or comes by another mount of the host. Without its last user
// nothing of it is busy on the host.
func TestHostPathInCommon(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir, part, disk := mountedVolume(t)
		buildProbe(t, dir)
		pod := newPod(ctx, t, d)
		reader := mounting(ctx, t, pod, "reader", dir, "ro")
		refused := "cat /v/given; echo x 2>/tmp/error >/v/given; grep -o 'Read-only file system' /tmp/error"
		if got := execOut(ctx, t, reader, harness.ExecConfig{Args: script(refused)}); got != "given\nRead-only file system\n" {
			t.Errorf("before there is a writer: %q", got)
		}
		one, other := mounting(ctx, t, pod, "one", dir, "rw"), mounting(ctx, t, pod, "other", part, "rw")
		late := mounting(ctx, t, pod, "late", part, "ro")
		works(ctx, t, one, pairScript)
		works(ctx, t, one, "(/v/probe serve unix:///v/sock >/tmp/served 2>&1 </dev/null &); mkfifo /v/fifo; for i in $(seq 20); do grep -q ready /tmp/served && exit 0; sleep 1; done; cat /tmp/served; exit 1")
		for name, c := range map[string]*harness.Container{"a writer": other, "its own container": one} {
			if got := works(ctx, t, c, "for use in flock setlk; do /v/probe file $use /v/pair 2>&1; done; /v/probe file ask /v/pair; true"); got != busyTwice+"ok\n" {
				t.Errorf("locks and mapping of another container, in %s: %q", name, got)
			}
			works(ctx, t, c, "/v/probe check 'unix:///v/sock?bytes=1000'")
		}
		works(ctx, t, other, "(sh -c 'echo through >/v/fifo' >/dev/null 2>&1 </dev/null &)")
		if got := works(ctx, t, one, "timeout 20 cat /v/fifo"); got != "through\n" {
			t.Errorf("through the FIFO: %q", got)
		}
		for name, c := range map[string]*harness.Container{"first": reader, "last": late} {
			works(ctx, t, c, "/v/probe check 'unix:///v/sock?bytes=1000'")
			if got := execOut(ctx, t, c, harness.ExecConfig{Args: script(refused)}); got != "given\nRead-only file system\n" {
				t.Errorf("a reader that came %s: %q", name, got)
			}
		}
		if err := errors.Join(unix.Unmount(part, 0), unix.Unmount(dir, 0)); err != nil {
			t.Errorf("unmount on the host: %v", err)
		}
		for _, c := range []*harness.Container{reader, one, other, late} {
			works(ctx, t, late, "cat /v/given")
			if err := inUse(disk); !errors.Is(err, unix.EBUSY) {
				t.Fatalf("the disk while a container has it: %v, want %v", err, unix.EBUSY)
			}
			if err := c.Remove(ctx); err != nil {
				t.Fatal(err)
			}
		}
		pod.Services = nil
		for range 100 { // the kernel ends a file system after its last use
			if inUse(disk) == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		if err := inUse(disk); err != nil {
			t.Errorf("the disk when no container has it: %v", err)
		}
		works(ctx, t, mounting(ctx, t, pod, "next", t.TempDir(), "rw"), "echo x >/v/x")
	})
}

// A container that is saved and continued from has its volumes in the places where the
// guest knows them, with the files that it has open there.
func TestCheckpointWithVolume(t *testing.T) {
	saving(t, "", func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir := t.TempDir()
		mounts := oci.WithMounts([]specs.Mount{
			{Type: "bind", Source: t.TempDir(), Destination: "/other", Options: []string{"rbind", "ro"}},
			{Type: "bind", Source: dir, Destination: "/v", Options: []string{"rbind", "rw"}},
		})
		stdin, in := io.Pipe()
		text := strings.ReplaceAll(tally, "/log", "/v/log")
		box, err := d.Create(ctx, harness.ContainerConfig{Name: "saved", Args: script(text), Stdio: harness.Stdio{Stdin: stdin}, Spec: []oci.SpecOpts{mounts}})
		c := started(ctx, t, box, err, in)
		c.say(ctx, t, "a", "1 a")
		image, err := c.Checkpoint(ctx, true)
		if err != nil {
			t.Fatal(err)
		}
		wantCode(ctx, t, &c.Process, 137)
		stdin, in = io.Pipe()
		box, err = d.Restore(ctx, "restored", image, harness.Stdio{Stdin: stdin}, mounts)
		r := started(ctx, t, box, err, in)
		r.say(ctx, t, "b", "2 b")
		works(ctx, t, r.Container, "echo 3 >>/v/log; ls /other")
		if data, err := os.ReadFile(filepath.Join(dir, "log")); string(data) != "1 a\n2 b\n3\n" {
			t.Errorf("on the host: %q, %v", data, err)
		}
	})
}

// inUse fails with EBUSY while the host has a disk mounted.
func inUse(disk string) error {
	fd, err := unix.Open(disk, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// busyTwice is what the probe says of locks that another process holds.
const busyTwice = "probe: resource temporarily unavailable\nprobe: resource temporarily unavailable\n"

// mountedVolume mounts a disk on the host, and makes a second mount of it as the kubelet
// makes for a subPath. The test unmounts both, or its end does.
func mountedVolume(t *testing.T) (dir, part, disk string) {
	t.Helper()
	dir, part = t.TempDir(), t.TempDir()
	file := filepath.Join(t.TempDir(), "disk")
	write(t, file, "")
	if err := os.Truncate(file, 64<<20); err != nil {
		t.Fatal(err)
	}
	tool(t, "mkfs.ext4", "-q", file)
	disk = tool(t, "losetup", "--find", "--show", file)
	t.Cleanup(func() {
		_ = unix.Unmount(part, unix.MNT_DETACH) // mounted if the test failed
		_ = unix.Unmount(dir, unix.MNT_DETACH)
		if out, err := exec.Command("losetup", "--detach", disk).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach: %v: %s", err, out)
		}
	})
	if err := unix.Mount(disk, dir, "ext4", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir, part, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "given"), "given\n")
	return dir, part, disk
}

// tool runs a program of the host, and returns its output.
func tool(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return strings.TrimSpace(string(out))
}

// mounting adds a container that has a directory of the host at /v.
func mounting(ctx context.Context, t *testing.T, pod *harness.Pod, name, dir, mode string) *harness.Container {
	t.Helper()
	return add(ctx, t, pod, harness.ContainerConfig{Name: name, Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{oci.WithMounts([]specs.Mount{
		{Type: "bind", Source: dir, Destination: "/v", Options: []string{"rbind", "rprivate", mode}},
	})}})
}
