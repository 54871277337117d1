package harness

import (
	"os"
	"path/filepath"
	"testing"
)

// The distribution's containerd is the unpacked one where "make deps" has left the
// installed one, which is another.
func TestDistributionsContainerd(t *testing.T) {
	l := Layout{Root: t.TempDir()}
	unpacked := filepath.Join(l.Build(), "packages/containerd/usr/bin")
	want := "/usr/bin/containerd"
	for range 2 {
		r, err := FindRelease(l, "1.6")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Path("containerd"); got != want {
			t.Errorf("it is %s, want %s", got, want)
		}
		if err := os.MkdirAll(unpacked, 0o755); err != nil {
			t.Fatal(err)
		}
		want = filepath.Join(unpacked, "containerd")
	}
}
