package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

const daemon = "/usr/lib/qemu/virtiofsd"

// newShare opens a share with the real daemon.
func newShare(t *testing.T) *Share {
	t.Helper()
	return openWith(t)
}

// openWith opens a share whose daemon gets additional arguments.
func openWith(t *testing.T, args ...string) *Share {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	if _, err := os.Stat(daemon); err != nil {
		t.Skipf("virtiofsd is not installed (Debian: qemu-system-common): %v", err)
	}
	scratch := t.TempDir()
	s, err := OpenShare(t.Context(), ShareOptions{ID: "pod", Scratch: scratch, Daemon: daemon, Tag: "t", Cache: "auto", ExtraArgs: args})
	if err != nil {
		t.Fatal(err)
	}
	checkNoMounts(t, scratch) // all of it is in its own namespace
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// inShare returns a path to a file of the share that can be used from outside.
func inShare(s *Share, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d%s/%s", s.space.root.Fd(), s.root(), name)
}

// checkEmpty fails the test when something of a container is in the share.
func checkEmpty(t *testing.T, s *Share, id string) {
	t.Helper()
	mounts, err := s.space.mounts(s.dir(id))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		t.Errorf("mount left: %s", m.Mountpoint)
	}
	if _, err := os.Stat(inShare(s, id)); !os.IsNotExist(err) {
		t.Errorf("the container's directory is left: %v", err)
	}
}

func checkNoMounts(t *testing.T, below string) {
	t.Helper()
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(info)) {
		if strings.Contains(line, " "+below) {
			t.Errorf("mount left: %s", line)
		}
	}
}

// tree makes a directory with one file in it.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("data"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestShareContainer(t *testing.T) {
	s := newShare(t)
	rootfs, volume := tree(t), tree(t)
	paths, err := s.AddContainer(t.Context(), "c1", rootfs, []guestspec.Bind{
		{Index: 3, Source: volume, ReadOnly: true},
		{Index: 5, Source: filepath.Join(volume, "file")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := "/run/kata-containers/shared/containers/c1/mounts/5"; paths.Binds[1].At != want {
		t.Errorf("mount 5 is at %s, want %s", paths.Binds[1].At, want)
	}
	for _, name := range []string{"rootfs/file", "mounts/3/file", "mounts/5"} {
		if data, err := os.ReadFile(inShare(s, "c1/"+name)); string(data) != "data" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if err := os.WriteFile(inShare(s, "c1/mounts/3/new"), nil, 0o644); err == nil {
		t.Error("a read-only mount can be written")
	}
	if err := s.RemoveContainer(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, s, "c1")
	if _, err := os.Stat(filepath.Join(volume, "file")); err != nil {
		t.Errorf("the host's file is gone: %v", err)
	}
}

func TestShareFailureLeavesNothing(t *testing.T) {
	s := newShare(t)
	_, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{{Index: 0, Source: "/no/such/source"}})
	if err == nil || !strings.Contains(err.Error(), "/no/such/source") {
		t.Fatalf("got %v, want an error that names the source", err)
	}
	checkEmpty(t, s, "c1")
}

// Close has to clean up after containers that were never removed.
func TestCloseTakesContainersAlong(t *testing.T) {
	s := newShare(t)
	rootfs := tree(t)
	if _, err := s.AddContainer(t.Context(), "c1", rootfs, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(rootfs, "file")); string(data) != "data" {
		t.Errorf("the rootfs was touched: %q, %v", data, err)
	}
}

func TestOpenShareWithoutDaemon(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir := t.TempDir()
	_, err := OpenShare(t.Context(), ShareOptions{ID: "pod", Scratch: dir, Daemon: "/no/such/virtiofsd", Tag: "t"})
	if err == nil || !strings.Contains(err.Error(), "/no/such/virtiofsd") {
		t.Fatalf("got %v, want an error that names the daemon", err)
	}
	checkNoMounts(t, dir)
}

// attacher records what it is given, and holds a share's connection as a VM
// does.
type attacher struct {
	got    hypervisor.Device
	socket int
}

func (a *attacher) Attach(_ context.Context, d hypervisor.Device) error {
	a.got = d
	share, ok := d.(hypervisor.FSShare)
	if !ok {
		return nil
	}
	fd, err := unix.FcntlInt(share.Socket.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	a.socket = fd
	return err
}

func TestAttachThenDaemonDeath(t *testing.T) {
	s := newShare(t)
	vm := new(attacher)
	if err := s.Attach(context.Background(), vm); err != nil {
		t.Fatal(err)
	}
	if d, ok := vm.got.(hypervisor.FSShare); !ok || d.Tag != "t" {
		t.Errorf("attached %#v", vm.got)
	}
	// The VM has the only other end of the connection: when it is closed, the
	// daemon ends.
	if err := unix.Close(vm.socket); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
}

// refusing is a VM that takes no device.
type refusing struct{}

func (refusing) Attach(context.Context, hypervisor.Device) error { return errRefused }

var errRefused = errors.New("refused")

// When a daemon ends immediately, the error of the call that needs it says why.
func TestDaemonThatCannotStart(t *testing.T) {
	s := openWith(t, "--no-such-thing")
	err := s.Attach(t.Context(), refusing{})
	if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "virtiofsd ended: exit status ") || !strings.Contains(err.Error(), "; virtiofsd said: ") ||
		!strings.Contains(err.Error(), "--no-such-thing") {
		t.Error(err)
	}
	// A running daemon is not named as the cause.
	if err := openWith(t).Explain(errRefused); !errors.Is(err, errRefused) || strings.Contains(err.Error(), "virtiofsd ended") {
		t.Error(err)
	}
}

func TestMountRootfs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	target := filepath.Join(t.TempDir(), "rootfs")
	source := tree(t)
	mounted, err := MountRootfs(t.Context(), []*types.Mount{{Type: "bind", Source: source, Options: []string{"rbind"}}}, target)
	if err != nil || !mounted {
		t.Fatal(mounted, err)
	}
	if _, err := os.Stat(filepath.Join(target, "file")); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := UnmountRootfs(target); err != nil {
			t.Fatal(err)
		}
	}
	checkNoMounts(t, target)
	if _, err := MountRootfs(t.Context(), nil, filepath.Join(target, "none")); err == nil || !strings.Contains(err.Error(), "the engine passed no mount for it") {
		t.Errorf("got %v", err)
	}
}

// Containers are added and removed while the share is closed: in any order,
// nothing is left.
func TestCloseAmongContainers(t *testing.T) {
	s := newShare(t)
	rootfs := tree(t)
	var wg sync.WaitGroup
	for _, id := range []string{"c1", "c2", "c3"} {
		wg.Go(func() {
			for range 20 {
				if _, err := s.AddContainer(t.Context(), id, rootfs, nil); err != nil && !errdefs.IsFailedPrecondition(err) {
					t.Error(err)
				}
				if err := s.RemoveContainer(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if _, err := s.AddContainer(t.Context(), "c4", rootfs, nil); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a container in a closed share: %v", err)
	}
}

func TestBindForPod(t *testing.T) {
	s, dir := newShare(t), tree(t)
	other := t.TempDir()
	if err := s.BindForPod(t.Context(), []string{dir, other + ":rw"}); err != nil {
		t.Fatal(err)
	}
	at := func(source string) string { return inShare(s, "sandbox-mounts/"+filepath.Base(source)) }
	if err := os.WriteFile(filepath.Join(at(dir), "new"), nil, 0o600); err == nil {
		t.Error("a read-only mount can be written to")
	}
	if err := os.WriteFile(filepath.Join(at(other), "new"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if err := s.BindForPod(t.Context(), []string{"/a/x", "/b/x"}); err == nil {
		t.Error("two mounts have one name")
	}
	if err := s.BindForPod(t.Context(), []string{dir + "/missing"}); !errdefs.IsNotFound(err) {
		t.Errorf("a source that is not there: %v", err)
	}
}
