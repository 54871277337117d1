package deploy

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/harness"
)

// startTimeout bounds a containerd and what it runs here.
const startTimeout = 5 * time.Minute

const image = "katabox.local/installer:test"

// The installer's image, imported into each containerd and run by runc,
// installs on a node that is mounted at /host, and uninstalls what it has
// installed.
func TestImageInstalls(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	layout, err := harness.FindLayout()
	if err != nil {
		t.Fatal(err)
	}
	archive := buildImage(t, layout)
	releases, err := harness.ReleasesFromEnv(layout)
	if err != nil {
		t.Fatal(err)
	}
	for _, release := range releases {
		t.Run(release.Name, func(t *testing.T) { installFrom(t, layout, release, archive) })
	}
}

func buildImage(t *testing.T, layout harness.Layout) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image")
	cmd := exec.CommandContext(t.Context(), "go", "run", "./deploy/image", "-out", out, "-version", "test")
	cmd.Dir = layout.Root
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the image: %v: %s", err, text)
	}
	return out + ".tar"
}

func installFrom(t *testing.T, layout harness.Layout, release harness.Release, archive string) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	d, err := harness.Start(ctx, harness.Options{Layout: layout, Release: release, Runtime: harness.Runc})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	}()
	if out, err := d.Ctr(ctx, "images", "import", "--snapshotter", d.Snapshotter, archive); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	root := newNode(t)
	before := tree(t, root)
	runInstaller(ctx, t, d, root)
	for name, source := range map[string]string{
		"bin/containerd-shim-kata-v2": "bin/containerd-shim-kata-v2", "bin/kata-runtime": "bin/kata-runtime",
		"share/man/man8/kata-runtime.8": "docs/man/kata-runtime.8",
	} {
		want, err := os.ReadFile(filepath.Join(layout.Root, source))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, "opt/kata", name))
		if err != nil || string(got) != string(want) {
			t.Errorf("%s on the node: %d bytes, want %d: %v", name, len(got), len(want), err)
		}
	}
	script, err := os.ReadFile(filepath.Join(root, "opt/kata/share/bash-completion/completions/kata-runtime"))
	if err != nil || !strings.Contains(string(script), "kata-runtime") {
		t.Errorf("the completion script: %q, %v", script, err)
	}
	runInstaller(ctx, t, d, root, "uninstall", "--host-root", "/host", "--restart", "never")
	if diff := cmp.Diff(before, tree(t, root)); diff != "" {
		t.Errorf("the node after uninstall (-want +got):\n%s", diff)
	}
}

// runInstaller runs the image with the node's root at /host. Without arguments
// it runs the image's default command, which fails if no service can be
// restarted; a second run accepts that.
func runInstaller(ctx context.Context, t *testing.T, d *harness.Daemon, root string, args ...string) {
	t.Helper()
	if len(args) > 0 { // ctr's arguments also replace the entry point
		args = append([]string{"/opt/kata/bin/kata-runtime"}, args...)
	}
	options := []string{"--mount", "type=bind,src=" + root + ",dst=/host,options=rbind:rw"}
	out, err := d.CtrRunWith(ctx, d.Runtime(), options, d.NewID("installer"), image, args...).CombinedOutput()
	if len(args) == 0 {
		if err == nil || !strings.Contains(string(out), "restart it by hand") {
			t.Fatalf("install on a node without systemd: %v: %s", err, out)
		}
		runInstaller(ctx, t, d, root, "install", "--host-root", "/host", "--restart", "never")
		return
	}
	if err != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// newNode makes the tree of a node with a containerd 2.x that cannot be run.
func newNode(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"etc/containerd/config.toml": "version = 3\n", "usr/bin/qemu-system-x86_64": fakeQEMU(t),
		"usr/lib/systemd/system/containerd.service": "[Service]\n", "proc/1/cmdline": "/sbin/init\x00", "opt/other": "",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// fakeQEMU returns a program that answers what the installer asks as this machine's QEMU
// does. It is static: the node has no libraries and no shell.
func fakeQEMU(t *testing.T) string {
	t.Helper()
	dir, answers := t.TempDir(), map[string]string{}
	for _, args := range [][]string{{"--version"}, {"-machine", "help"}, {"-accel", "help"}, {"-device", "help"}} {
		answer, err := exec.CommandContext(t.Context(), harness.DefaultQEMU, args...).Output()
		if err != nil {
			t.Fatalf("%s %q: %v", harness.DefaultQEMU, args, err)
		}
		answers[strings.Join(args, " ")] = string(answer)
	}
	source := fmt.Sprintf(`package main

import (
	"os"
	"strings"
)

func main() {
	answer, known := %#v[strings.Join(os.Args[1:], " ")]
	if !known {
		os.Exit(1) // as a QEMU does that gets a machine with an unknown option
	}
	os.Stdout.WriteString(answer)
}
`, answers)
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", "qemu", "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a program that answers as QEMU does: %v: %s", err, text)
	}
	program, err := os.ReadFile(filepath.Join(dir, "qemu"))
	if err != nil {
		t.Fatal(err)
	}
	return string(program)
}

// tree returns the mode and the digest of all that is below root.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if info.Mode().IsRegular() {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			sum := sha256.New()
			_, err = io.Copy(sum, f)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
			text += fmt.Sprintf(" %x", sum.Sum(nil))
		}
		found[path] = text
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}
