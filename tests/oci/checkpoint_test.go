package oci

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// A container is saved by runc's command, and ends as runc's does; another one
// continues from it, in front of other files.
func TestCheckpoint(t *testing.T) {
	useSavingQEMU(t)
	r := newRuntime(t, suite.kata)
	bundle := r.bundle("n=0; echo ready; while read line; do n=$((n+1)); echo $n $line; done; exit 7", nil)
	image := filepath.Join(t.TempDir(), "made", "image")

	first := r.talking(t, "create", "--bundle", bundle, "c1")
	r.want(0, "", "start", "c1")
	first.says(t, "a", "ready\n1 a\n")
	r.want(0, "", "checkpoint", "--image-path", image, "--leave-running", "c1")
	first.says(t, "b", "ready\n1 a\n2 b\n")
	// As with runc, the later one replaces the first. These options of runc's make no difference.
	r.want(0, "", "checkpoint", "--image-path", image, "--work-path", t.TempDir(), "--leave-running", "--leave-running",
		"--tcp-established", "--tcp-skip-in-flight", "--link-remap", "--ext-unix-sk", "--shell-job", "--file-locks",
		"--manage-cgroups-mode", "soft", "--empty-ns", "network", "--auto-dedup", "c1")
	first.says(t, "c", "ready\n1 a\n2 b\n3 c\n")
	r.want(1, "one pass", "checkpoint", "--pre-dump", "c1")
	second := image + "-2"
	r.want(0, "", "checkpoint", "--image-path", second, "c1")
	if s := r.state("c1"); s.Status != "stopped" {
		t.Errorf("the saved container is %s when the call has returned", s.Status)
	}
	if code := reap(t, first.pid); code != 137 {
		t.Errorf("the saved container ended with %d, want 137", code)
	}
	r.want(1, "it was saved, and ended", "checkpoint", "--image-path", image, "c1") // leaves the former one
	for _, dir := range []string{image, second} {
		checkFiles(t, dir, "inventory.img", "sandbox.katabox")
	}
	r.want(0, "", "delete", "c1")

	r.want(1, "want --detach", "restore", "--image-path", image, "--bundle", bundle, "c2")
	r.want(1, "it is not a checkpoint", "restore", "--detach", "--image-path", filepath.Dir(image), "--bundle", bundle, "c2")
	for from, want := range map[string]string{image: "3 d\n", second: "4 d\n"} {
		copied := r.talking(t, "restore", "--detach", "--image-path", from, "--bundle", bundle, "c2")
		copied.says(t, "d", want)
		_ = copied.in.Close()
		if code := reap(t, copied.pid); code != 7 {
			t.Errorf("the copy ended with %d, want 7", code)
		}
		r.want(0, "", "delete", "c2")
	}
}

// useSavingQEMU has the runtime make machines that can be saved, for a test.
func useSavingQEMU(t *testing.T) {
	t.Helper()
	layout, err := harness.FindLayout()
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(t.TempDir(), "configuration.toml")
	if err := (harness.KataConfig{QEMU: layout.SavingQEMU(t), Virtiofsd: harness.OwnVirtiofs}).Write(layout, conf); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KATA_CONF_FILE", conf)
}

// checkFiles checks which files are in a directory.
func checkFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Errorf("%s has %q, want %q", dir, names, want)
	}
}

// want calls the runtime and checks its code, and that it says something.
func (r *runtime) want(code int, says string, args ...string) {
	r.t.Helper()
	if res := r.call(args...); res.code != code || !strings.Contains(res.errors, says) {
		r.t.Fatalf("%v: %d %q %q, want %d and %q", args, res.code, res.out, res.errors, code, says)
	}
}

// talker is a container with input and output.
type talker struct {
	in, out *os.File
	pid     int
}

// talking makes a container by that command.
func (r *runtime) talking(t *testing.T, args ...string) talker {
	t.Helper()
	inR, inW := pipe(t)
	out := create(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	args = append(args[:len(args)-1:len(args)-1], "--pid-file", pidFile, args[len(args)-1])
	if code := r.command([3]*os.File{inR, out, out}, args...); code != 0 {
		t.Fatalf("%v: %d %s", args, code, content(t, out))
	}
	_ = inR.Close()
	return talker{inW, out, r.pid(pidFile)}
}

// says writes a line, and waits for all of the output.
func (c talker) says(t *testing.T, line, want string) {
	t.Helper()
	if _, err := c.in.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
	awaitText(t, c.out, want)
}
