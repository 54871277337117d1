package manager

import (
	"os"
	"path/filepath"
	"testing"
)

// Engines name bundles by the container's id; CRI-O has them in a directory below
// that.
func TestSandboxBundle(t *testing.T) {
	dir := t.TempDir()
	for _, made := range []string{"containerd/pod", "crio/pod/userdata", "isula/pod-1", "isula/other"} {
		if err := os.MkdirAll(filepath.Join(dir, made), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ bundle, sandbox, want string }{
		{"containerd/c1", "pod", "containerd/pod"},
		{"crio/c1/userdata", "pod", "crio/pod/userdata"},
		{"isula/c1", "po", "isula/pod-1"},
		{"containerd/elsewhere", "pod", "containerd/pod"}, // a path without the id
		{"crio/c1/userdata", "none", ""},
		{"none/c1", "pod", ""},
	} {
		got, err := sandboxBundle(&Params{ID: "c1", Bundle: filepath.Join(dir, test.bundle)}, test.sandbox)
		want := ""
		if test.want != "" {
			want = filepath.Join(dir, test.want)
		}
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s of sandbox %s: %q, %v, want %q", test.bundle, test.sandbox, got, err, want)
		}
	}
}
