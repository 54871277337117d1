package volume

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func needPrograms(t *testing.T) {
	t.Helper()
	for _, name := range []string{"mkfs.ext4", "debugfs", "e2fsck"} {
		if _, err := find(name); err != nil {
			t.Skip(err)
		}
	}
}

// output runs a program of e2fsprogs.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	program, err := find(name)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return string(out)
}

// The image's root equals the volume's directory as the kubelet made it: empty,
// with fsGroup's group and mode.
func TestMakeImage(t *testing.T) {
	needPrograms(t)
	dir := chown(t, t.TempDir(), Owner{Mode: 0o2777, UID: 1001, GID: 123})
	d := imageOf(dir)
	if err := MakeImage(d); err != nil {
		t.Fatal(err)
	}
	root := output(t, "debugfs", "-R", "stat /", d.Path)
	for _, want := range []string{"Mode:  02777", "Type: directory", "User:  1001", "Group:   123", "Links: 2"} {
		if !strings.Contains(root, want) {
			t.Errorf("root without %q:\n%s", want, root)
		}
	}
	if list := output(t, "debugfs", "-R", "ls -p /", d.Path); strings.Contains(list, "lost+found") {
		t.Errorf("in the root: %s", list)
	}
	output(t, "e2fsck", "-fn", d.Path)
	var st unix.Stat_t
	var host unix.Statfs_t
	if err := unix.Stat(d.Path, &st); err != nil {
		t.Fatal(err)
	}
	if err := unix.Statfs(dir, &host); err != nil {
		t.Fatal(err)
	}
	if want := min(int64(host.Blocks)*host.Bsize, maxImage); st.Size < want-blockSize || st.Size > want {
		t.Errorf("size %d, want %d as the file system's", st.Size, want)
	}
	if st.Blocks*512 > 64<<20 || st.Mode&0o777 != 0o600 {
		t.Errorf("%d bytes on disk, mode %o", st.Blocks*512, st.Mode)
	}
}

// An existing image stays, and concurrent calls make only one.
func TestMakeImageOnce(t *testing.T) {
	needPrograms(t)
	dir := t.TempDir()
	mountAt(t, "tmpfs", dir, "tmpfs", 0, "size=64m")
	d := imageOf(dir)
	inodes := make([]uint64, 4)
	var all sync.WaitGroup
	for i := range inodes {
		all.Go(func() {
			if err := MakeImage(d); err != nil {
				t.Error(err)
			}
			var st unix.Stat_t
			if err := unix.Stat(d.Path, &st); err != nil {
				t.Error(err)
			}
			inodes[i] = st.Ino
		})
	}
	all.Wait()
	if len(slices.Compact(inodes)) != 1 {
		t.Errorf("inodes %v, want one", inodes)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestMakeImageRefused(t *testing.T) {
	needPrograms(t)
	dir := t.TempDir()
	d := imageOf(dir)
	victim := write(t, t.TempDir()+"/victim", "data")
	if err := os.Symlink(victim, d.Path); err != nil {
		t.Fatal(err)
	}
	if err := MakeImage(d); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), d.Path) {
		t.Errorf("a link: %v", err)
	}
	if err := MakeImage(imageOf(dir + "/none")); err == nil {
		t.Error("a directory that is not there")
	}
	full := t.TempDir()
	mountAt(t, "tmpfs", full, "tmpfs", 0, "size=4k")
	if err := MakeImage(imageOf(full)); err == nil || !strings.Contains(err.Error(), "mkfs.ext4") {
		t.Errorf("a file system of one page: %v", err)
	}
	if entries, err := os.ReadDir(full); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := find("mkfs.none"); err == nil || !strings.Contains(err.Error(), "e2fsprogs") {
		t.Errorf("no program: %v", err)
	}
}

// If the root could not be adjusted, there is no image.
func TestAdjustRootFails(t *testing.T) {
	needPrograms(t)
	file := write(t, t.TempDir()+"/file", strings.Repeat("no file system ", 1000))
	if err := adjustRoot(file, 0o40755); err == nil || !strings.Contains(err.Error(), "debugfs") {
		t.Errorf("no file system: %v", err)
	}
}
