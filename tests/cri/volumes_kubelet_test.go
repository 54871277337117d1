package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/cri/env"
)

// kubelet makes a pod's volumes as a kubelet does: directories and mounts below
// its directory, which the runtime's configuration names.
type kubelet struct {
	t *testing.T
	e *env.Env
	// dir is the kubelet's directory, pod the pod's in it.
	dir, pod string
	undo     []func() error
}

// newKubelet makes the directories, and configures the runtime for later pods
// to find them. settings are lines of the runtime's configuration. Everything
// is removed at the test's end, after its pods.
func newKubelet(t *testing.T, e *env.Env, settings ...string) *kubelet {
	t.Helper()
	if !bed.runtime.VM {
		t.Skip("the kubelet's volumes are plain directories to runc")
	}
	k := &kubelet{t: t, e: e}
	// Below the daemon's directory, so that the leak check finds mounts that
	// are left.
	k.dir = k.mkdir(filepath.Join(e.Daemon.Dir, e.Daemon.NewID("kubelet")))
	k.pod = filepath.Join(k.dir, "pods", "uid")
	dropIn := filepath.Join(filepath.Dir(e.Daemon.KataConfigPath()), "config.d", "volumes.toml")
	k.mkdir(filepath.Dir(dropIn))
	settings = append([]string{fmt.Sprintf("runtime.kubelet_root_dir = %q", k.dir)}, settings...)
	k.write(dropIn, strings.Join(settings, "\n")+"\n")
	t.Cleanup(func() {
		if err := e.RemovePods(context.Background()); err != nil {
			t.Error(err)
		}
		errs := []error{os.Remove(dropIn)}
		for _, undo := range slices.Backward(k.undo) {
			errs = append(errs, undo())
		}
		if err := errors.Join(append(errs, os.RemoveAll(k.dir))...); err != nil {
			t.Error(err)
		}
	})
	return k
}

// mustDo returns the value of a call that must not fail.
func mustDo(t *testing.T) func(string, error) string {
	t.Helper()
	return func(s string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

func (k *kubelet) must(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Fatal(err)
	}
}

func (k *kubelet) mkdir(path string) string {
	k.t.Helper()
	k.must(os.MkdirAll(path, 0o755))
	return path
}

func (k *kubelet) write(path, text string) string {
	k.t.Helper()
	k.must(os.WriteFile(path, []byte(text), 0o644))
	return path
}

// own sets a directory's owner and mode; mode has the bits of chmod(2).
func (k *kubelet) own(path string, uid, gid int, mode uint32) string {
	k.t.Helper()
	k.must(os.Chown(path, uid, gid))
	k.must(unix.Chmod(path, mode))
	return path
}

// mount mounts until the test's end.
func (k *kubelet) mount(source, target, fstype string, flags uintptr, options string) {
	k.t.Helper()
	k.must(unix.Mount(source, target, fstype, flags, options))
	k.undo = append(k.undo, func() error { return os.NewSyscallError("umount", unix.Unmount(target, 0)) })
}

// volume makes a volume's directory; a plugin is "empty-dir", "secret", ...
func (k *kubelet) volume(plugin, name string) string {
	k.t.Helper()
	return k.mkdir(filepath.Join(k.pod, "volumes", "kubernetes.io~"+plugin, name))
}

// fsGroup applies Kubernetes' fsGroup to a new volume.
func (k *kubelet) fsGroup(dir string, gid int) string {
	k.t.Helper()
	return k.own(dir, 0, gid, 0o2777)
}

// memory makes an emptyDir of medium Memory.
func (k *kubelet) memory(name, size string) string {
	k.t.Helper()
	dir := k.volume("empty-dir", name)
	k.mount("tmpfs", dir, "tmpfs", 0, "size="+size)
	return k.own(dir, 0, 0, 0o777)
}

// subPath bind-mounts a part of a volume, a directory that it makes or an
// existing file, for a container's mount of that index (Kubernetes,
// pkg/volume/util/subpath).
func (k *kubelet) subPath(volume, part string, index int) string {
	k.t.Helper()
	name := filepath.Base(strings.TrimSuffix(volume, "/mount")) // CSI's
	target := filepath.Join(k.mkdir(filepath.Join(k.pod, "volume-subpaths", name, "container")), fmt.Sprint(index))
	source := filepath.Join(volume, part)
	if info, err := os.Stat(source); err == nil && info.Mode().IsRegular() {
		k.write(target, "")
	} else {
		k.own(k.mkdir(source), 0, 0, 0o777)
		k.mkdir(target)
	}
	k.mount(source, target, "", unix.MS_BIND, "")
	return target
}

// publish writes a ConfigMap's or a Secret's files as the kubelet does: into a
// new directory, to which ..data is atomically redirected (Kubernetes,
// pkg/volume/util/atomic_writer.go).
func (k *kubelet) publish(dir string, files map[string]string) {
	k.t.Helper()
	version := mustDo(k.t)(os.MkdirTemp(dir, "..2026_"))
	k.must(os.Chmod(version, 0o755))
	for name, text := range files {
		k.write(filepath.Join(version, name), text)
	}
	old, _ := os.Readlink(filepath.Join(dir, "..data")) // none at first
	next := filepath.Join(dir, "..data_tmp")
	k.must(os.Symlink(filepath.Base(version), next))
	k.must(os.Rename(next, filepath.Join(dir, "..data")))
	for name := range files {
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			k.t.Fatal(err)
		}
	}
	if old != "" {
		k.must(os.RemoveAll(filepath.Join(dir, old)))
	}
}

// disk makes a file with an empty ext4 file system.
func (k *kubelet) disk(name string) string {
	k.t.Helper()
	path := k.write(filepath.Join(k.dir, name), "")
	k.must(os.Truncate(path, 64<<20))
	mkfs := mustDo(k.t)(findProgram("mkfs.ext4"))
	if out, err := exec.CommandContext(k.t.Context(), mkfs, "-q", "-F", path).CombinedOutput(); err != nil {
		k.t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	return path
}

// loop attaches a file to a loop device until the test's end.
func (k *kubelet) loop(file string) string {
	k.t.Helper()
	losetup := mustDo(k.t)(findProgram("losetup"))
	out, err := exec.CommandContext(k.t.Context(), losetup, "--find", "--show", file).Output()
	if err != nil {
		k.t.Fatalf("losetup %s: %v", file, err)
	}
	device := strings.TrimSpace(string(out))
	k.undo = append(k.undo, func() error { return exec.Command(losetup, "--detach", device).Run() })
	return device
}

// findProgram looks for a program of the system's.
func findProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	return exec.LookPath("/usr/sbin/" + name)
}

// mounts is the part of a container's configuration that mounts volumes,
// "source:target" or "source:target:ro" each.
func mounts(volumes ...string) []any {
	var list []any
	for _, v := range volumes {
		words := strings.Split(v, ":")
		list = append(list, map[string]any{"host_path": words[0], "container_path": words[1], "readonly": len(words) > 2})
	}
	return list
}

// with is the configuration of a container with volumes.
func with(volumes ...string) map[string]any { return map[string]any{"mounts": mounts(volumes...)} }

// as makes a container run as a user with an additional group.
func as(uid, group int, more map[string]any) map[string]any {
	more["linux"] = map[string]any{"security_context": map[string]any{
		"run_as_user": map[string]any{"value": uid}, "supplemental_groups": []int{group},
	}}
	return more
}

// refused starts a container that cannot be started, and returns the error.
func (p *pod) refused(ctx context.Context, t *testing.T, more map[string]any) string {
	t.Helper()
	id := p.create(ctx, t, forever, more)
	_, err := p.e.Crictl(ctx, "start", id)
	if err == nil {
		t.Fatal("the container has started")
	}
	return err.Error()
}

// startAll starts containers concurrently.
func (p *pod) startAll(ctx context.Context, t *testing.T, ids ...string) {
	t.Helper()
	var group errgroup.Group
	for _, id := range ids {
		group.Go(func() error {
			_, err := p.e.Crictl(ctx, "start", id)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// sh runs a line of shell in a container.
func (p *pod) sh(ctx context.Context, t *testing.T, id, line string) string {
	t.Helper()
	return p.exec(ctx, t, id, "sh", "-c", line)
}

// mounted returns type and options of what is mounted at a path in a container.
func (p *pod) mounted(ctx context.Context, t *testing.T, id, path string) (fstype, options, device string) {
	t.Helper()
	for line := range strings.Lines(p.exec(ctx, t, id, "cat", "/proc/mounts")) {
		// device path type options 0 0
		if words := strings.Fields(line); len(words) > 3 && words[1] == path {
			fstype, options, device = words[2], words[3], words[0]
		}
	}
	return fstype, options, device
}

// awaitOutput repeats a line of shell in a container until it prints that.
func (p *pod) awaitOutput(ctx context.Context, t *testing.T, id, line, want string) {
	t.Helper()
	for {
		got := p.sh(ctx, t, id, line)
		if got == want {
			return
		}
		p.pause(ctx, t, fmt.Sprintf("%s prints %q (last %q)", line, want, got))
	}
}

// pause waits a moment before another look, if there is time.
func (p *pod) pause(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	select {
	case <-ctx.Done():
		t.Fatalf("wait until %s: %v", what, ctx.Err())
	case <-time.After(100 * time.Millisecond):
	}
}
