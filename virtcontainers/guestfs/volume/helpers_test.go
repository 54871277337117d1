package volume

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/virtcontainers/guestfs/volume/direct"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// node is a kubelet's directory with one pod.
type node struct {
	t       *testing.T
	kubelet string
	direct  direct.Dir
}

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{t: t, kubelet: t.TempDir(), direct: direct.Dir(t.TempDir())}
}

// volume makes a directory for a volume of a plugin ("empty-dir").
func (n *node) volume(plugin, name string) string {
	n.t.Helper()
	return mkdir(n.t, filepath.Join(n.kubelet, "pods/uid/volumes/kubernetes.io~"+plugin, name))
}

// subPath binds a directory or a file as the kubelet does for a container's
// subPath.
func (n *node) subPath(volume, of string) string {
	n.t.Helper()
	dir := mkdir(n.t, filepath.Join(n.kubelet, "pods/uid/volume-subpaths", volume, "container"))
	target := filepath.Join(dir, "0")
	info, err := os.Stat(of)
	if err != nil {
		n.t.Fatal(err)
	}
	if info.IsDir() {
		mkdir(n.t, target)
	} else {
		write(n.t, target, "")
	}
	mountAt(n.t, of, target, "", unix.MS_BIND, "")
	return target
}

// classify is Classify with the node's direct volumes.
func (n *node) classify(opts Options, b guestspec.Bind) (Volume, error) {
	if opts.KubeletDir == "" {
		opts.KubeletDir = n.kubelet
	}
	return newClassifier(opts, n.direct).classify(b)
}

// expect classifies a source, and compares everything but the bind.
func (n *node) expect(opts Options, source string, want Volume) {
	n.t.Helper()
	got, err := n.classify(opts, guestspec.Bind{Source: source})
	want.Bind = guestspec.Bind{Source: source}
	if want.Key == "" {
		want.Key = source
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); err != nil || diff != "" {
		n.t.Errorf("%s: %v (-want +got):\n%s", source, err, diff)
	}
}

func mkdir(t *testing.T, dir string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// chown gives a directory an owner and a mode, including set-id and sticky
// bits.
func chown(t *testing.T, path string, o Owner) string {
	t.Helper()
	if err := os.Chown(path, int(o.UID), int(o.GID)); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chmod(path, o.Mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// mountAt mounts until the test's end.
func mountAt(t *testing.T, source, target, fstype string, flags uintptr, options string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	if err := unix.Mount(source, target, fstype, flags, options); err != nil {
		t.Fatalf("mount %s at %s: %v", source, target, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}
