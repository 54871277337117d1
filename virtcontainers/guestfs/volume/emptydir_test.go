package volume

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

var shared = Options{Share: true}

// memoryOptions are the guest's mount options for the kubelet's tmpfs of these
// tests.
var memoryOptions = []string{"mode=02777", "uid=1001", "gid=123", "size=8388608", "nr_inodes=1000"}

// memory makes an emptyDir of medium Memory, to which fsGroup was applied.
func memory(t *testing.T, n *node, name string) string {
	t.Helper()
	dir := n.volume("empty-dir", name)
	mountAt(t, "tmpfs", dir, "tmpfs", 0, "size=8m,nr_inodes=1000")
	return chown(t, dir, Owner{Mode: 0o2777, UID: 1001, GID: 123})
}

func TestMemory(t *testing.T) {
	n := newNode(t)
	dir := memory(t, n, "cache")
	for _, opts := range []Options{shared, {}, {Share: true, ImageDirs: true}} {
		n.expect(opts, dir, Volume{Kind: Memory, Key: dir, Options: memoryOptions})
	}
	// A part of the volume that is bound by another engine than the kubelet.
	below := chown(t, mkdir(t, dir+"/a/b"), Owner{Mode: 0o1750, UID: 5})
	n.expect(shared, below, Volume{
		Kind: Memory, Key: dir, Options: memoryOptions, Sub: "a/b", SubMode: Owner{Mode: 0o1750, UID: 5},
	})
}

// A size that no user set comes from the host and is not a limit.
func TestMemoryWithoutLimit(t *testing.T) {
	n := newNode(t)
	dir := n.volume("empty-dir", "cache")
	mountAt(t, "tmpfs", dir, "tmpfs", 0, "nr_inodes=0")
	options := []string{"mode=01777", "uid=0", "gid=0", "nr_inodes=0"}
	n.expect(shared, dir, Volume{Kind: Memory, Key: dir, Options: options})
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=90%"); err != nil {
		t.Fatal(err)
	}
	n.expect(shared, dir, Volume{Kind: Memory, Key: dir, Options: options})
}

// The pod's overhead is no part of a volume that is as large as the pod's limit.
func TestMemoryWithinThePodsLimit(t *testing.T) {
	n := newNode(t)
	dir := memory(t, n, "cache")
	for memory, size := range map[uint64]string{0: "size=8388608", 4 << 20: "size=4194304", 16 << 20: "size=8388608"} {
		options := slices.Clone(memoryOptions)
		options[3] = size
		n.expect(Options{Share: true, MemoryBytes: memory}, dir, Volume{Kind: Memory, Key: dir, Options: options})
	}
}

// If the kubelet's directory is on a tmpfs, not every volume is Memory; nor is
// a tmpfs that is not an emptyDir.
func TestTmpfsIsNotMemory(t *testing.T) {
	n := newNode(t)
	mountAt(t, "tmpfs", n.kubelet, "tmpfs", 0, "")
	n.expect(shared, n.volume("empty-dir", "cache"), Volume{})
	other := n.volume("nfs", "export")
	mountAt(t, "tmpfs", other, "tmpfs", 0, "")
	n.expect(shared, other, Volume{})
}

func TestHugepages(t *testing.T) {
	n := newNode(t)
	dir := n.volume("empty-dir", "huge")
	if err := unix.Mount("nodev", dir, "hugetlbfs", 0, "pagesize=2M"); err != nil {
		t.Skipf("no hugetlbfs here: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	owner := []string{"mode=0755", "uid=0", "gid=0", "pagesize=2097152"}
	n.expect(shared, dir, Volume{Kind: Hugepages, Key: dir, Options: owner})
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("nodev", dir, "hugetlbfs", 0, "pagesize=2M,size=4M"); err != nil {
		t.Fatal(err)
	}
	n.expect(shared, dir, Volume{Kind: Hugepages, Key: dir, Options: append(owner, "size=4194304")})
}

func TestEmptyDirOnDisk(t *testing.T) {
	n := newNode(t)
	dir := n.volume("empty-dir", "scratch")
	n.expect(shared, dir, Volume{})
	image := Volume{Kind: Image, Key: dir, Disk: Disk{Path: dir + "/disk.img", Fstype: "ext4", Options: []string{"discard"}}}
	n.expect(Options{}, dir, image)
	n.expect(Options{Share: true, ImageDirs: true}, dir, image)
	// The host's files are not touched.
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("in the volume: %v, %v", entries, err)
	}
	part := chown(t, mkdir(t, dir+"/part"), Owner{Mode: 0o750, UID: 7, GID: 8})
	sub := n.subPath("scratch", part)
	n.expect(shared, sub, Volume{})
	image.Sub, image.SubMode = "part", Owner{Mode: 0o750, UID: 7, GID: 8}
	n.expect(Options{Share: true, ImageDirs: true}, sub, image)
}

// A subPath that the kubelet has bound elsewhere is found in its volume,
// whatever its name.
func TestSubPathOfMemory(t *testing.T) {
	n := newNode(t)
	dir := memory(t, n, "cache")
	for _, name := range []string{"plain", "two words/tab\there", `back\slash`, "back\\040slash", "..data"} {
		part := chown(t, mkdir(t, filepath.Join(dir, name)), Owner{Mode: 0o2770, UID: 1, GID: 123})
		t.Run(name, func(t *testing.T) {
			n := &node{t: t, kubelet: n.kubelet, direct: n.direct}
			n.expect(shared, n.subPath("cache", part), Volume{
				Kind: Memory, Key: dir, Options: memoryOptions, Sub: name, SubMode: Owner{Mode: 0o2770, UID: 1, GID: 123},
			})
		})
	}
	// The whole volume, as with subPath ".".
	t.Run("all", func(t *testing.T) {
		n := &node{t: t, kubelet: n.kubelet, direct: n.direct}
		n.expect(shared, n.subPath("cache", dir), Volume{Kind: Memory, Key: dir, Options: memoryOptions})
	})
}

func TestSubPathErrors(t *testing.T) {
	n := newNode(t)
	dir := memory(t, n, "cache")
	elsewhere := memory(t, n, "elsewhere")
	tests := []struct {
		name, source, want string
		is                 func(error) bool
	}{
		{"another volume's", n.subPath("cache", elsewhere), "not below " + dir, errdefs.IsInvalidArgument},
	}
	for _, test := range tests {
		if _, err := n.classify(shared, guestspec.Bind{Source: test.source}); !test.is(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	t.Run("a file", func(t *testing.T) {
		n := &node{t: t, kubelet: n.kubelet, direct: n.direct}
		source := write(t, dir+"/file", "")
		if _, err := n.classify(shared, guestspec.Bind{Source: source}); !errdefs.IsInvalidArgument(err) {
			t.Error(err)
		}
	})
	t.Run("removed", func(t *testing.T) {
		n := &node{t: t, kubelet: n.kubelet, direct: n.direct}
		other := memory(t, n, "removed")
		part := mkdir(t, other+"/part")
		source := n.subPath("removed", part)
		if err := os.Remove(part); err != nil {
			t.Fatal(err)
		}
		if _, err := n.classify(shared, guestspec.Bind{Source: source}); !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	})
}

// An engine passes paths without symbolic links.
func TestKubeletBehindSymlink(t *testing.T) {
	n := newNode(t)
	dir := memory(t, n, "cache")
	link := filepath.Join(t.TempDir(), "kubelet")
	if err := os.Symlink(n.kubelet, link); err != nil {
		t.Fatal(err)
	}
	want := Volume{Kind: Memory, Key: dir, Options: memoryOptions}
	n.expect(Options{Share: true, KubeletDir: link}, dir, want)
	for path, volume := range map[string]bool{dir: true, filepath.Join(link, "pods/uid/volumes/kubernetes.io~empty-dir/cache"): true, n.kubelet: true, "/dev/shm": false} {
		if IsVolume(link, path) != volume {
			t.Errorf("%s is a volume: %v", path, !volume)
		}
	}
	// A path with links works too.
	want.Key = dir
	n.expect(shared, strings.Replace(dir, n.kubelet, link, 1), want)
}

// At /dev/shm a user's volume is not taken for the engine's own shared memory.
func TestIsVolume(t *testing.T) {
	n := newNode(t)
	dir := t.TempDir()
	for name, tmpfs := range map[string]bool{"engine/shm": true, "fast": true, "disk/shm": false} {
		if at := mkdir(t, filepath.Join(dir, name)); tmpfs {
			mountAt(t, "shm", at, "tmpfs", 0, "")
		}
	}
	mkdir(t, filepath.Join(dir, "fast/shm"))
	for name, want := range map[string]bool{"engine/shm": false, "engine/shm/": false, "fast": true, "fast/shm": true, "disk/shm": true, "none/shm": true} {
		if got := IsVolume(n.kubelet, dir+"/"+name); got != want {
			t.Errorf("%s is a volume: %v, want %v", name, got, want)
		}
	}
}

// In a pod with user namespaces the guest does not map ids: owners are given as
// mapped.
func TestOwnersAreMapped(t *testing.T) {
	n := newNode(t)
	dir := memory(t, n, "cache")
	part := chown(t, mkdir(t, dir+"/part"), Owner{Mode: 0o700, UID: 2, GID: 70000})
	ids := &guestspec.IDMap{
		UIDs: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 100000, Size: 65536}},
		GIDs: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 200000, Size: 65536}},
	}
	v, err := n.classify(shared, guestspec.Bind{Source: part, IDMap: ids})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"mode=02777", "uid=101001", "gid=200123", "size=8388608", "nr_inodes=1000"}; !slices.Equal(v.Options, want) {
		t.Errorf("options %q, want %q", v.Options, want)
	}
	if want := (Owner{Mode: 0o700, UID: 100002, GID: 70000}); v.SubMode != want {
		t.Errorf("part %+v, want %+v", v.SubMode, want)
	}
	disk := n.volume("empty-dir", "disk")
	if v, err := n.classify(Options{Share: true, ImageDirs: true}, guestspec.Bind{Source: disk, IDMap: ids}); err != nil || v.Kind != Shared {
		t.Errorf("an idmapped emptyDir: %v, %v", v.Kind, err)
	}
}
