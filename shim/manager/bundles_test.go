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
	for _, made := range []string{"containerd/pod", "crio/pod/userdata", "isula/pod-1", "isula/other",
		"state/io.containerd.runtime.v2.task/ns/api-c1", "state/io.containerd.sandbox.controller.v1.shim/ns/api"} {
		if err := os.MkdirAll(filepath.Join(dir, made), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ bundle, sandbox, want string }{
		{"containerd/c1", "pod", "containerd/pod"},
		{"crio/c1/userdata", "pod", "crio/pod/userdata"},
		{"isula/c1", "po", "isula/pod-1"},
		{"containerd/elsewhere", "pod", "containerd/pod"}, // a path without the id
		{"state/io.containerd.runtime.v2.task/ns/c1", "api", "state/io.containerd.sandbox.controller.v1.shim/ns/api"},
		{"state/io.containerd.runtime.v2.task/other/c1", "api", ""},
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

// What docs/troubleshooting.md says of a container whose pod is gone.
func TestSandboxBundleSaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"pod-1", "pod-2"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]string{
		"gone": "find sandbox gone: no bundle below " + dir + " has this id: has the pod ended?",
		"pod":  "find sandbox pod: 2 sandboxes below " + dir + " have an id with this prefix, want one",
	} {
		if _, err := findBundle(dir, id); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", id, err, want)
		}
	}
}
