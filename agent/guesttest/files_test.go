package guesttest

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// add mounts storages for the whole pod.
func (m *machine) add(t *testing.T, storages ...*api.Storage) error {
	t.Helper()
	_, err := m.guest.AddStorages(t.Context(), &api.AddStoragesRequest{Storages: storages})
	return errgrpc.ToNative(err)
}

func (m *machine) mustAdd(t *testing.T, storages ...*api.Storage) {
	t.Helper()
	if err := m.add(t, storages...); err != nil {
		t.Fatal(err)
	}
}

// bound returns the spec of a container with one of the guest's directories at
// /v.
func bound(source, script string) *specs.Spec {
	spec := shell(script)
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/v", Type: "bind", Source: source, Options: []string{"rbind"}})
	return spec
}

func TestGuestStoragesOfThePod(t *testing.T) {
	m := guestOnly(t)
	memory := &api.Storage{Driver: "tmpfs", Target: api.GuestStorageDir + "/1", Options: []string{"size=2m", "mode=0777"}, FsGroup: &api.FSGroup{Gid: 123}}
	for range 3 { // Every container that needs it asks for it.
		m.mustAdd(t, memory)
	}
	if r := m.run(t, "writer", bound(memory.Target, "echo kept >/v/f; df -k /v | tail -n 1; stat -c '%a %g' /v")); !strings.Contains(r.out, " 2048 ") || !strings.HasSuffix(r.out, "2777 123\n") {
		t.Errorf("%+v", r)
	}
	if r := m.run(t, "reader", bound(memory.Target, "cat /v/f; stat -c %g /v/f")); r.out != "kept\n123\n" {
		t.Errorf("%+v", r)
	}
	// If one cannot be mounted, only those of the same call are unmounted.
	other := &api.Storage{Driver: "tmpfs", Target: api.GuestStorageDir + "/2"}
	if err := m.add(t, memory, other, &api.Storage{Driver: "tmpfs", Target: "/etc"}); !errdefs.IsInvalidArgument(err) {
		t.Error(err)
	}
	mounts := fileIn(t, "/proc/mounts")
	if strings.Contains(mounts, other.Target) || strings.Count(mounts, memory.Target) != 1 {
		t.Error(mounts)
	}
}

// hugepages returns how many huge pages of 2 MiB the guest has.
func hugepages(t *testing.T) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(fileIn(t, "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"), &n); err != nil {
		t.Error(err)
	}
	return n
}

func TestGuestHugepages(t *testing.T) {
	m := guestOnly(t)
	before := hugepages(t)
	huge := func(name, size string) *api.Storage {
		return &api.Storage{Driver: "hugetlbfs", Target: api.GuestStorageDir + "/" + name, Options: []string{"pagesize=2Mi", "size=" + size, "mode=0700"}}
	}
	m.mustAdd(t, huge("h1", "4M"), huge("h2", "2M"))
	if got := hugepages(t); got != before+3 {
		t.Errorf("%d huge pages, want %d and 3", got, before)
	}
	r := m.run(t, "huge", bound(huge("h1", "").Target, "grep ' /v ' /proc/mounts; df -k /v | tail -n 1; stat -c %a /v"))
	if !strings.HasPrefix(r.out, "hugetlbfs /v hugetlbfs rw,") || !strings.Contains(r.out, "pagesize=2M,size=4194304") || !strings.HasSuffix(r.out, "700\n") {
		t.Errorf("%+v", r)
	}
	if err := m.add(t, huge("h3", "1Ti")); !errdefs.IsResourceExhausted(err) || !strings.Contains(err.Error(), "give the machine more memory") {
		t.Error(err)
	}
	if got := hugepages(t); got != before+3 {
		t.Errorf("%d huge pages after a refusal, want %d and 3", got, before)
	}
}

// A container may have its own huge pages, which are released with it.
func TestGuestHugepagesOfAContainer(t *testing.T) {
	m := guestOnly(t)
	before := hugepages(t)
	config := withSpec(t, shell("true"), &api.ContainerConfig{Storages: []*api.Storage{
		{Driver: "hugetlbfs", Target: diskDir + "huge", Options: []string{"pagesize=2M", "size=8M"}},
	}})
	if err := m.create(t, "ownpages", config); err != nil {
		t.Fatal(err)
	}
	if got := hugepages(t); got != before+4 {
		t.Errorf("%d huge pages, want %d and 4", got, before)
	}
	m.finish(t, "ownpages", "")
	if got := hugepages(t); got != before {
		t.Errorf("%d huge pages are left, want %d", got, before)
	}
}

func TestGuestErofsOnTwoDisks(t *testing.T) {
	m := guestOnly(t)
	if os.Getenv(erofsKey) != "true" {
		t.Skip("the host has no mkfs.erofs")
	}
	erofs := &api.Storage{Driver: "virtio-blk", Source: "01/09", Fstype: "erofs", Target: diskDir + "erofs"}
	// Linux 6.12 mounts it without its second disk, and cannot read any
	// content.
	err := m.create(t, "half", withSpec(t, bound(erofs.Target, "cat /v/file"), &api.ContainerConfig{Storages: []*api.Storage{erofs}}))
	if err == nil {
		if r := m.finish(t, "half", ""); r.out == erofsContent || r.exit.GetStatus() == 0 {
			t.Errorf("without its second disk: %+v", r)
		}
		m.forget("half")
	} else if !strings.Contains(err.Error(), "mount erofs /dev/vd") {
		t.Errorf("without its second disk: %v", err)
	}
	erofs.Devices = []string{"01/0a"}
	if err := m.create(t, "erofs", withSpec(t, bound(erofs.Target, "cat /v/file"), &api.ContainerConfig{Storages: []*api.Storage{erofs}})); err != nil {
		t.Fatal(err)
	}
	if r := m.finish(t, "erofs", ""); r.out != erofsContent {
		t.Errorf("%+v", r)
	}
	m.forget("erofs")
}

func TestGuestGroupOfADisk(t *testing.T) {
	m := guestOnly(t)
	group := upperDisk("group")
	group.FsGroup = &api.FSGroup{Gid: 4711}
	spec := bound(group.Target, "stat -c '%g %a' /v /v/lost+found; echo x >/v/new && stat -c %g /v/new")
	spec.Process.User = specs.User{UID: 1000, GID: 1000, AdditionalGids: []uint32{4711}}
	if err := m.create(t, "group", withSpec(t, spec, &api.ContainerConfig{Storages: []*api.Storage{group}})); err != nil {
		t.Fatal(err)
	}
	if r := m.finish(t, "group", ""); r.out != "4711 2775\n4711 2770\n4711\n" {
		t.Errorf("%+v", r)
	}
}

// Changes of files in the guest.
func (m *machine) changeFiles(t *testing.T, changes ...*api.FileChange) error {
	t.Helper()
	_, err := m.guest.ChangeFiles(t.Context(), &api.ChangeFilesRequest{Changes: changes})
	return errgrpc.ToNative(err)
}

func (m *machine) mustChange(t *testing.T, changes ...*api.FileChange) {
	t.Helper()
	if err := m.changeFiles(t, changes...); err != nil {
		t.Fatal(err)
	}
}

func dirChange(path string) *api.FileChange {
	return &api.FileChange{Path: api.GuestFilesDir + "/" + path, Mode: 0o755, Change: &api.FileChange_Directory{Directory: &api.Directory{}}}
}

func fileChange(path, content string) *api.FileChange {
	return &api.FileChange{Path: api.GuestFilesDir + "/" + path, Mode: 0o644, Uid: 5, Gid: 6, Change: &api.FileChange_File{
		File: &api.FilePart{Content: []byte(content), Last: true},
	}}
}

func linkChange(path, to string) *api.FileChange {
	return &api.FileChange{Path: api.GuestFilesDir + "/" + path, Change: &api.FileChange_Symlink{Symlink: to}}
}

func removal(path string) *api.FileChange {
	return &api.FileChange{Path: api.GuestFilesDir + "/" + path, Change: &api.FileChange_Remove{Remove: &api.Remove{}}}
}

func TestGuestFiles(t *testing.T) {
	m := guestOnly(t)
	m.mustChange(t, dirChange("1"), fileChange("1/f", "one\n"), dirChange("1/d"), fileChange("1/d/g", ""), linkChange("1/l", "d/g"))
	if mounts := fileIn(t, "/proc/mounts"); strings.Count(mounts, "tmpfs "+api.GuestFilesDir+" tmpfs rw,nosuid,nodev") != 1 {
		t.Error(mounts)
	}
	r := m.run(t, "files", bound(api.GuestFilesDir+"/1", "cat /v/f; stat -c '%a %u:%g' /v /v/f /v/d/g; readlink /v/l"))
	if r.out != "one\n755 0:0\n644 5:6\n644 5:6\nd/g\n" {
		t.Errorf("%+v", r)
	}
	m.mustChange(t, removal("1"))
	if left, err := os.ReadDir(api.GuestFilesDir); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", left, err)
	}
}

// A single mounted file changes in running containers.
func TestGuestFileThatIsMountedAlone(t *testing.T) {
	m := guestOnly(t)
	alone := func(content string) *api.FileChange {
		c := fileChange("5", content)
		c.GetFile().InPlace = true
		return c
	}
	m.mustChange(t, alone("one\n"))
	spec := shell("trap 'exit 7' TERM; while :; do sleep 1000 & wait $!; done")
	spec.Mounts = append(spec.Mounts, specs.Mount{Destination: "/f", Type: "bind", Source: api.GuestFilesDir + "/5", Options: []string{"bind"}})
	m.start(t, "alone", spec)
	for _, content := range []string{"two, longer\n", "3\n"} {
		m.mustChange(t, alone(content))
		if r := m.exec(t, "alone", "cat", process("cat /f")); r.out != content {
			t.Errorf("%+v, want %q", r, content)
		}
		m.forget("alone")
	}
}

// A container with write access to its copies cannot redirect changes.
func TestGuestFilesAreNotLedAstray(t *testing.T) {
	m := guestOnly(t)
	m.mustChange(t, dirChange("2"), dirChange("2/d"), dirChange("3"), fileChange("3/f", "other's\n"))
	r := m.run(t, "hostile", bound(api.GuestFilesDir+"/2",
		"ln -s ../3 /v/up; ln -s /etc /v/out; ln -s /etc/passwd /v/f; rmdir /v/d; ln -s "+api.GuestFilesDir+"/3 /v/d; mkdir /v/dir; mkfifo /v/fifo"))
	if r.exit.GetStatus() != 0 {
		t.Errorf("%+v", r)
	}
	for _, c := range []*api.FileChange{
		fileChange("2/up/f", "x"), fileChange("2/out/passwd", "x"), fileChange("2/d/f", "x"), dirChange("2/d/e"), removal("2/up/f"),
		linkChange("2/d/l", "x"), dirChange("2/d"), dirChange("2/out"), dirChange("2/fifo"), fileChange("2/dir", "x"), fileChange("../agent/x", "x"), removal(""),
	} {
		if err := m.changeFiles(t, c); !errdefs.IsInvalidArgument(err) && !errdefs.IsFailedPrecondition(err) {
			t.Errorf("%v: %v", c, err)
		}
	}
	m.mustChange(t, fileChange("2/f", "ours\n"), fileChange("2/fifo", "ours\n"), removal("2/d"), dirChange("2/d"), removal("2/out"))
	if text := fileIn(t, api.GuestFilesDir+"/3/f"); text != "other's\n" {
		t.Errorf("%q", text)
	}
	if left, err := os.ReadDir(api.GuestFilesDir + "/3"); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if _, err := os.Stat("/etc/passwd"); err == nil {
		t.Error("the guest has an /etc/passwd")
	}
	m.mustChange(t, removal("2"), removal("3"))
}

// watchDir returns the names that appear in a directory, by rename(2) or
// otherwise, according to inotify.
func watchDir(t *testing.T, dir string) func(change func()) []string {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE|unix.IN_DELETE); err != nil {
		t.Fatal(err)
	}
	return func(change func()) (names []string) {
		change()
		buf := make([]byte, 16<<10) // An event is queued before the change's system call returns.
		n, err := unix.Read(fd, buf)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at+unix.SizeofInotifyEvent <= n; {
			length := int(buf[at+12]) | int(buf[at+13])<<8
			name, _, _ := strings.Cut(string(buf[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+length]), "\x00")
			names = append(names, name)
			at += unix.SizeofInotifyEvent + length
		}
		return names
	}
}

// Programs in a pod see the change of a ConfigMap.
func TestGuestFilesTellOfChanges(t *testing.T) {
	m := guestOnly(t)
	m.mustChange(t, dirChange("4"), dirChange("4/..1"), fileChange("4/..1/key", "1"), linkChange("4/..data", "..1"), linkChange("4/key", "..data/key"))
	events := watchDir(t, api.GuestFilesDir+"/4")
	names := events(func() {
		m.mustChange(t, dirChange("4/..2"), fileChange("4/..2/key", "2"), linkChange("4/..data", "..2"), removal("4/..1"))
	})
	if got := strings.Join(names, " "); got != "..data ..1" {
		t.Errorf("told of %q", got)
	}
	if text := fileIn(t, api.GuestFilesDir+"/4/key"); text != "2" {
		t.Errorf("%q", text)
	}
	m.mustChange(t, removal("4"))
}

// The kernel bounds the memory that copies and volumes take. A storage may be
// among the copies: a volume in which the host makes directories.
func TestGuestFilesAreBounded(t *testing.T) {
	m := guestOnly(t)
	m.mustAdd(t, &api.Storage{Driver: "tmpfs", Target: api.GuestFilesDir + "/full", Options: []string{"size=2m"}})
	m.mustChange(t, dirChange("full/sub"))
	part := func(i int) *api.FileChange {
		return &api.FileChange{Path: api.GuestFilesDir + "/full/sub/f", Mode: 0o600, Change: &api.FileChange_File{
			File: &api.FilePart{Offset: uint64(i) << 20, Content: []byte(strings.Repeat("x", 1<<20))},
		}}
	}
	m.mustChange(t, part(0))
	m.mustChange(t, part(1))
	if err := m.changeFiles(t, part(2)); !errdefs.IsResourceExhausted(err) {
		t.Error(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(api.GuestFilesDir+"/full", &st); err != nil || st.Blocks-st.Bfree > 1 {
		t.Errorf("%d of %d blocks are free: %v", st.Bfree, st.Blocks, err)
	}
	if err := unix.Statfs(api.GuestFilesDir, &st); err != nil || st.Blocks*uint64(st.Bsize) > startMiB<<20/2 {
		t.Errorf("%d blocks: %v", st.Blocks, err)
	}
}
