package rootfs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/types"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestfs/rootfs"
)

// image makes a file system image that contains a file of that name.
func image(t *testing.T, fstype, name string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	dir, path := t.TempDir(), filepath.Join(t.TempDir(), name+"."+fstype)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
		t.Fatal(err)
	}
	args := map[string][]string{
		"ext4":  {"mkfs.ext4", "-q", "-d", dir, path, "4m"},
		"erofs": {"mkfs.erofs", path, dir},
	}[fstype]
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Skipf("%s: %v\n%s", args[0], err, out)
	}
	return path
}

// mountHost mounts at a new directory, which it returns.
func mountHost(t *testing.T, mounts []*types.Mount) (string, error) {
	t.Helper()
	target := filepath.Join(t.TempDir(), "rootfs")
	if err := os.Mkdir(target, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
			t.Error(err)
		}
		for range 2 { // the second time nothing is left
			if err := rootfs.UnmountHost(target); err != nil {
				t.Error(err)
			}
		}
		left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Dir(target)))
		if err != nil || len(left) != 0 {
			t.Errorf("mounts left: %v, %v", left, err)
		}
		if entries, err := os.ReadDir(filepath.Dir(target)); err != nil || len(entries) != 1 {
			t.Errorf("left beside the root file system: %v, %v", entries, err)
		}
	})
	return target, rootfs.MountHost(mounts, target)
}

func checkFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		if data, err := os.ReadFile(filepath.Join(dir, name)); string(data) != filepath.Base(name) {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
}

// The erofs snapshotter's usual overlay: its upper directory is the host's.
func TestMountHostOverlay(t *testing.T) {
	a, b, upper := image(t, "erofs", "a"), image(t, "erofs", "b"), t.TempDir()
	mounts := []*types.Mount{
		m("erofs", a, "ro", "loop"), m("erofs", b, "ro", "loop"),
		overlay("workdir="+filepath.Join(upper, "w"), "upperdir="+filepath.Join(upper, "u"), "lowerdir={{ overlay 0 1 }}"),
	}
	for _, name := range []string{"u", "w"} {
		if err := os.Mkdir(filepath.Join(upper, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if plan, err := rootfs.Parse(mounts); plan != nil || err != nil {
		t.Errorf("a plan: %v, %v", plan, err)
	}
	target, err := mountHost(t, mounts)
	if err != nil {
		t.Fatal(err)
	}
	checkFiles(t, target, "a", "b")
	if err := os.WriteFile(filepath.Join(target, "c"), []byte("c"), 0o600); err != nil {
		t.Error(err)
	}
	checkFiles(t, upper, "u/c")
}

// Everything on disks, as for a guest, with directories to be made.
func TestMountHostBlockMode(t *testing.T) {
	a, disk := image(t, "erofs", "a"), image(t, "ext4", "e")
	mounts := []*types.Mount{m("ext4", disk, "rw", "loop"), m("erofs", a, "ro", "loop"), overlay(with(block, "lowerdir={{ mount 1 }}")...)}
	for range 2 { // the second time the directories exist
		target, err := mountHost(t, mounts)
		if err != nil {
			t.Fatal(err)
		}
		checkFiles(t, target, "a")
		info, err := os.Stat(filepath.Join(target+".layers", "0", "upper"))
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("the upper directory: %v, %v", info, err)
		}
	}
}

func TestMountHostOneDisk(t *testing.T) {
	target, err := mountHost(t, []*types.Mount{m("ext4", image(t, "ext4", "e"), "loop")})
	if err != nil {
		t.Fatal(err)
	}
	checkFiles(t, target, "e")
}

// A container that was root on its disk may have put anything there.
func TestMountHostFollowsNoLink(t *testing.T) {
	disk, outside := image(t, "ext4", "e"), t.TempDir()
	target, err := mountHost(t, []*types.Mount{m("ext4", disk, "loop")})
	if err == nil {
		err = os.Symlink(outside, filepath.Join(target, "upper"))
	}
	if err == nil {
		err = unix.Unmount(target, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = mountHost(t, []*types.Mount{m("ext4", disk, "loop"), m("erofs", image(t, "erofs", "a"), "loop"), overlay(with(block, "lowerdir={{ mount 1 }}")...)})
	if err == nil || !strings.Contains(err.Error(), "/0/upper: it exists and is not a directory") {
		t.Errorf("got %v", err)
	}
}

func TestMountHostFailure(t *testing.T) {
	_, err := mountHost(t, []*types.Mount{m("erofs", image(t, "erofs", "a"), "ro", "loop"), m("erofs", "/none", "ro", "loop"), overlay("lowerdir={{ overlay 0 1 }}")})
	if err == nil || !strings.Contains(err.Error(), "mount 1, type erofs, source /none") {
		t.Errorf("got %v", err)
	}
	if err := rootfs.MountHost([]*types.Mount{m("mkfs/ext4", "/x")}, "/none"); err == nil {
		t.Error("an unknown template was mounted")
	}
}

// A file system whose data is in another file.
func TestMountHostDevices(t *testing.T) {
	dir, images := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	index, blob := filepath.Join(images, "index"), filepath.Join(images, "blob")
	if _, err := exec.LookPath("mkfs.erofs"); err != nil || os.Getuid() != 0 {
		t.Skipf("needs root and mkfs.erofs: %v", err)
	}
	if err := os.WriteFile(blob, nil, 0o644); err != nil { // erofs-utils 1.8 does not make it
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.erofs", "--chunksize=4096", "--blobdev="+blob, index, dir).CombinedOutput(); err != nil {
		t.Fatalf("make erofs: %v\n%s", err, out)
	}
	mounts := []*types.Mount{m("erofs", index, "ro", "loop", "device="+blob), m("format/bind", "{{ mount 0 }}", "ro", "rbind")}
	target, err := mountHost(t, mounts)
	if err != nil {
		t.Fatal(err)
	}
	checkFiles(t, target, "a")
	mounts[0].Options[2] = "device=/none"
	if _, err := mountHost(t, mounts); err == nil || !strings.Contains(err.Error(), "attach device /none") {
		t.Errorf("got %v", err)
	}
}
