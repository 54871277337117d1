package disk_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers/guestfs/disk"
)

var errInjected = errors.New("injected")

// machine returns a fake machine that runs.
func machine(t *testing.T) (*fake.Monitor, *fake.VM) {
	t.Helper()
	m := new(fake.Monitor)
	vm, err := m.Launch(t.Context(), hypervisor.Spec{ID: "s1"})
	if err == nil {
		err = vm.Resume(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return m, vm.(*fake.VM)
}

func file(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func use(t *testing.T, p *disk.Pool, src disk.Source) *disk.Disk {
	t.Helper()
	d, err := p.Use(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func release(t *testing.T, p *disk.Pool, d *disk.Disk) {
	t.Helper()
	if err := p.Release(t.Context(), d); err != nil {
		t.Error(err)
	}
}

// attached returns the IDs of the machine's disks.
func attached(vm *fake.VM) []string {
	ids := []string{}
	for _, d := range vm.Devices() {
		ids = append(ids, d.DeviceID())
	}
	return ids
}

func checkAttached(t *testing.T, vm *fake.VM, want ...string) {
	t.Helper()
	if diff := cmp.Diff(append([]string{}, want...), attached(vm)); diff != "" {
		t.Errorf("attached: %s", diff)
	}
}

// checkClosed checks that this process has no file in path's directory open.
func checkClosed(t *testing.T, path string) {
	t.Helper()
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasPrefix(target, filepath.Dir(path)) {
			t.Errorf("open: %s", target)
		}
	}
}

func TestDiskHasManyUsers(t *testing.T) {
	for bus, want := range map[hypervisor.DiskBus][]disk.Disk{
		hypervisor.VirtioBlk:  {{Driver: "virtio-blk", Place: "01/01"}, {Driver: "virtio-blk", Place: "01/02"}},
		hypervisor.VirtioSCSI: {{Driver: "scsi", Place: "02/01:1:0"}, {Driver: "scsi", Place: "02/01:2:0"}},
	} {
		_, vm := machine(t)
		p := disk.NewPool(vm, disk.Options{Bus: bus})
		a, b := file(t, "a"), file(t, "b")
		link := filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(a, link); err != nil {
			t.Fatal(err)
		}
		first, other, second := use(t, p, disk.Source{Path: a}), use(t, p, disk.Source{Path: b}), use(t, p, disk.Source{Path: link, ReadOnly: true})
		if diff := cmp.Diff([]disk.Disk{want[0], want[1], want[0]}, []disk.Disk{*first, *other, *second}); diff != "" {
			t.Error(diff)
		}
		checkAttached(t, vm, "disk-1", "disk-2")
		release(t, p, first)
		release(t, p, first) // twice, as a clean-up may: the other user keeps it
		release(t, p, nil)
		checkAttached(t, vm, "disk-1", "disk-2")
		release(t, p, second)
		checkAttached(t, vm, "disk-2")
		release(t, p, other)
		if again := use(t, p, disk.Source{Path: a}); *again != want[0] {
			t.Errorf("attached again at %v, want %v", *again, want[0])
		}
		checkAttached(t, vm, "disk-3")
		checkClosed(t, a)
	}
}

func TestDiskGetsTheOptions(t *testing.T) {
	_, vm := machine(t)
	opts := disk.Options{Bus: hypervisor.VirtioSCSI, AIO: hypervisor.AIONative,
		Cache: hypervisor.DiskCache{Direct: true, NoFlush: true}, LogicalBlockSize: 512, PhysicalBlockSize: 4096}
	use(t, disk.NewPool(vm, opts), disk.Source{Path: file(t, "a"), ReadOnly: true})
	got := vm.Devices()[0].(hypervisor.Disk)
	got.File = nil
	want := hypervisor.Disk{ID: "disk-1", ReadOnly: true, Bus: opts.Bus, AIO: opts.AIO, Cache: opts.Cache,
		LogicalBlockSize: 512, PhysicalBlockSize: 4096}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadOnlyDiskStaysSo(t *testing.T) {
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI})
	path := file(t, "a")
	hard := filepath.Join(filepath.Dir(path), "hard")
	if err := os.Link(path, hard); err != nil {
		t.Fatal(err)
	}
	d := use(t, p, disk.Source{Path: path, ReadOnly: true})
	_, err := p.Use(t.Context(), disk.Source{Path: hard})
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), hard) {
		t.Errorf("for writing: %v", err)
	}
	release(t, p, d)
	use(t, p, disk.Source{Path: hard})
}

func TestWrongSources(t *testing.T) {
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI, LogicalBlockSize: 4096})
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	short := file(t, "short")
	for _, test := range []struct {
		path string
		is   func(error) bool
		want string
	}{
		{filepath.Join(dir, "none"), errdefs.IsNotFound, "no such file"},
		{dir, errdefs.IsInvalidArgument, "want a regular file or a block device"},
		{"/dev/zero", errdefs.IsInvalidArgument, "want a regular file or a block device"},
		{empty, errdefs.IsInvalidArgument, "is empty"},
		{short, errdefs.IsInvalidArgument, "7 bytes, is not a multiple of the logical sector size, 4096"},
	} {
		_, err := p.Use(t.Context(), disk.Source{Path: test.path})
		if !test.is(err) || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.path) {
			t.Errorf("%s: %v, want %q", test.path, err, test.want)
		}
	}
	checkAttached(t, vm)
	checkClosed(t, empty)
	checkClosed(t, short)
}

func TestFailedAttachLeavesNothing(t *testing.T) {
	m, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI, AIO: hypervisor.AIOUring})
	path := file(t, "a")
	m.Fail(fake.StepAttach, errInjected)
	if _, err := p.Use(t.Context(), disk.Source{Path: path}); !errors.Is(err, errInjected) {
		t.Errorf("got %v", err)
	}
	checkAttached(t, vm)
	checkClosed(t, path)
	m.Fail(fake.StepAttach, nil)
	use(t, p, disk.Source{Path: path})
	if got := vm.Devices()[0].(hypervisor.Disk).AIO; got != hypervisor.AIOUring {
		t.Errorf("AIO is %s: it was not what failed", got)
	}
}

// A caller that gave up does not make others fail that wait for the same disk.
func TestConcurrentUsersAttachOnce(t *testing.T) {
	m, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioSCSI})
	path := file(t, "a")
	entered := make(chan struct{})
	var once sync.Once
	m.Hook(fake.StepAttach, func(ctx context.Context, _ *fake.VM) error {
		first := false
		once.Do(func() { first = true })
		if !first {
			return nil
		}
		close(entered)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		if _, err := p.Use(ctx, disk.Source{Path: path}); !errors.Is(err, errInjected) {
			t.Errorf("the caller that gave up: %v", err)
		}
	})
	<-entered
	disks := make([]*disk.Disk, 8)
	for i := range disks {
		all.Go(func() {
			var err error
			if disks[i], err = p.Use(t.Context(), disk.Source{Path: path}); err != nil {
				t.Error(err)
			}
		})
	}
	gone, stop := context.WithCancel(t.Context())
	stop()
	if _, err := p.Use(gone, disk.Source{Path: path}); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller with an ended context: %v", err)
	}
	cancel(errInjected)
	all.Wait()
	checkAttached(t, vm, "disk-2")
	for _, d := range disks {
		all.Go(func() { release(t, p, d) })
	}
	all.Wait()
	checkAttached(t, vm)
}

func TestFailedDetach(t *testing.T) {
	m, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioBlk})
	src := disk.Source{Path: file(t, "a")}
	d := use(t, p, src)
	m.Fail(fake.StepDetach, errInjected)
	if err := p.Release(t.Context(), d); !errors.Is(err, errInjected) {
		t.Errorf("Release: %v", err)
	}
	if _, err := p.Use(t.Context(), src); !errors.Is(err, errInjected) {
		t.Errorf("Use of what may go at any time: %v", err)
	}
	checkAttached(t, vm, "disk-1")
	m.Fail(fake.StepDetach, nil)
	second := use(t, p, src) // detaches, and attaches anew
	checkAttached(t, vm, "disk-2")
	release(t, p, d) // the second user has it
	checkAttached(t, vm, "disk-2")
	m.Fail(fake.StepDetach, errInjected)
	if err := p.Release(t.Context(), second); !errors.Is(err, errInjected) {
		t.Errorf("Release: %v", err)
	}
	m.Fail(fake.StepDetach, nil)
	release(t, p, second)
	release(t, p, second)
	checkAttached(t, vm)
}

// A machine that does not run yet cannot detach: the next user takes over its
// disk.
func TestReleaseBeforeTheMachineRuns(t *testing.T) {
	m := new(fake.Monitor)
	vm, err := m.Launch(t.Context(), hypervisor.Spec{ID: "s1"})
	if err != nil {
		t.Fatal(err)
	}
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioBlk})
	src := disk.Source{Path: file(t, "a")}
	if err := p.Release(t.Context(), use(t, p, src)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Release: %v", err)
	}
	use(t, p, src)
	checkAttached(t, vm.(*fake.VM), "disk-1")
}

func TestReleaseAfterTheEnd(t *testing.T) {
	_, vm := machine(t)
	p := disk.NewPool(vm, disk.Options{Bus: hypervisor.VirtioBlk})
	d := use(t, p, disk.Source{Path: file(t, "a")})
	vm.Die(errInjected)
	release(t, p, d)
	if _, err := p.Use(t.Context(), disk.Source{Path: file(t, "b")}); !errors.Is(err, errInjected) {
		t.Errorf("Use after the end: %v", err)
	}
}

// fixed is a machine that cannot detach.
type fixed struct{ *fake.VM }

func (fixed) Detach(context.Context, string) error { return errdefs.ErrNotImplemented }

func TestMachineThatKeepsDisks(t *testing.T) {
	_, vm := machine(t)
	p := disk.NewPool(fixed{vm}, disk.Options{Bus: hypervisor.VirtioBlk})
	path := file(t, "a")
	release(t, p, use(t, p, disk.Source{Path: path, ReadOnly: true}))
	if _, err := p.Use(t.Context(), disk.Source{Path: path}); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("for writing: %v", err)
	}
	use(t, p, disk.Source{Path: path, ReadOnly: true})
	checkAttached(t, vm, "disk-1")
}

// lost is a machine that loses a device before it reports the device's address.
type lost struct{ *fake.VM }

func (l lost) Locate(string) (hypervisor.Location, error) {
	return hypervisor.Location{}, errInjected
}

func TestDiskWithoutPlaceIsTakenOut(t *testing.T) {
	_, vm := machine(t)
	p := disk.NewPool(lost{vm}, disk.Options{Bus: hypervisor.VirtioBlk})
	if _, err := p.Use(t.Context(), disk.Source{Path: file(t, "a")}); !errors.Is(err, errInjected) {
		t.Errorf("got %v", err)
	}
	checkAttached(t, vm)
}
