package hostcgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/virtcontainers/sizing/resource"
)

// emptied makes the file with a cgroup's limit of swap: unlike a plain file, a real one is
// not appended to or overwritten in part.
func emptied(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, swapFile), "")
	}
}

// Both cgroups of a pod have its limit of swap, and nothing above them. Plain files stand
// for a v2 tree.
func TestLimitSwap(t *testing.T) {
	mount := t.TempDir()
	p := place{hierarchy: hierarchy{mount: mount, unified: true}, pod: filepath.Join(mount, "pods/kata_s"), overhead: filepath.Join(mount, overheadDir, "s")}
	c := &Cgroup{path: "/pods/kata_s", places: []place{p}}
	above := []string{filepath.Dir(p.pod), filepath.Dir(p.overhead)}
	if err := os.MkdirAll(p.pod, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.SetPlace(resource.Place{}); err != nil {
		t.Errorf("a kernel that counts no swap: %v", err)
	}
	for _, test := range []struct {
		limit uint64
		want  string
	}{{0, "0"}, {1 << 20, "1048576"}, {resource.NoSwapLimit, "max"}} {
		emptied(t, append(above, p.pod, p.overhead)...)
		if err := c.SetPlace(resource.Place{Swap: test.limit}); err != nil {
			t.Error(err)
		}
		for _, dir := range []string{p.pod, p.overhead} {
			if got := files(t, dir, swapFile)[swapFile]; got != test.want {
				t.Errorf("%s has %q, want %s", dir, got, test.want)
			}
		}
		for _, dir := range above {
			if got := files(t, dir, swapFile)[swapFile]; got != "" {
				t.Errorf("%s, which is not the pod's, has %q", dir, got)
			}
		}
	}
}

// What a spare has used is charged to the group of all spares when a pod has claimed it,
// and its guest may put a container's memory there.
func TestSparesDoNotSwap(t *testing.T) {
	mount := t.TempDir()
	h := hierarchy{mount: mount, unified: true}
	own := filepath.Join(h.dir(sparesDir), "77")
	c := &Cgroup{places: []place{{hierarchy: h, pod: own, overhead: own}}}
	emptied(t, own, h.dir(sparesDir), h.dir(overheadDir))
	if err := c.SetPlace(resource.Place{}); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{own: "0", h.dir(sparesDir): "0", h.dir(overheadDir): ""} {
		if got := files(t, dir, swapFile)[swapFile]; got != want {
			t.Errorf("%s has %q, want %q", dir, got, want)
		}
	}
}

// A new pod's cgroups have no swap, which counts where the guest's memory comes from a file.
func TestMadeWithoutSwap(t *testing.T) {
	mount := t.TempDir()
	p := place{hierarchy: hierarchy{mount: mount, unified: true}, pod: filepath.Join(mount, "pods/kata_s"), overhead: filepath.Join(mount, overheadDir, "s")}
	emptied(t, p.pod, p.overhead)
	if err := (&Cgroup{places: []place{p}}).Make(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{p.pod, p.overhead} {
		if got := files(t, dir, swapFile)[swapFile]; got != "0" {
			t.Errorf("%s of %s is %q, want 0", swapFile, dir, got)
		}
	}
}

// A limit of swap that the kernel refuses costs no pod its cgroups, unless the pod must be
// in its own.
func TestMadeWhereSwapIsRefused(t *testing.T) {
	for _, only := range []bool{false, true} {
		mount := t.TempDir()
		p := place{hierarchy: hierarchy{mount: mount, unified: true}, pod: filepath.Join(mount, "pods/kata_s")}
		if !only {
			p.overhead = filepath.Join(mount, overheadDir, "s")
		}
		if err := os.MkdirAll(filepath.Join(p.pod, swapFile), 0o755); err != nil { // cannot be written
			t.Fatal(err)
		}
		if err := (&Cgroup{places: []place{p}}).Make(); (err != nil) != only {
			t.Errorf("only %v: %v", only, err)
		}
	}
}
