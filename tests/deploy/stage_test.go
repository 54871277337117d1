package deploy

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeCheckout makes a checkout in a directory with a blank in its name, with what
// "make stage" and deploy/deb.sh need; its programs and guest do nothing.
func fakeCheckout(t *testing.T) string {
	t.Helper()
	const root = "../.."
	dir := filepath.Join(t.TempDir(), "a b")
	for _, name := range []string{
		"Makefile", "VERSION", "LICENSE", "README.md", "CHANGELOG.md", "configuration.toml", "docs/configuration.md", "docs/troubleshooting.md",
		"docs/man/kata-runtime.8", "deploy/deb.sh", "deploy/version.sh",
	} {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(data))
	}
	for _, name := range []string{"bin/containerd-shim-kata-v2", "bin/kata-runtime", "build/guest/vmlinux", "build/guest/initrd.img"} {
		write(t, filepath.Join(dir, name), "#!/bin/sh\necho completion\n")
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// strict runs a command of a checkout as a user with a strict umask does.
func strict(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `umask 077 && exec "$0" "$@"`, program}, args...)...)
	cmd.Dir = dir
	// In a hook of git, or with "git rebase --exec", these name the developer's repository.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
	cmd.Env = append(cmd.Env, "GIT_CONFIG_GLOBAL=/dev/null") // which may ask for signatures
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", program, args, err, out)
	}
	return string(out)
}

// What is installed can be read by all users, and a blank in a path is part of it.
func TestStageAndUninstall(t *testing.T) {
	dir := fakeCheckout(t)
	dest := filepath.Join(dir, "d e")
	write(t, filepath.Join(dest, "other"), "")
	strict(t, dir, "make", "stage", "DESTDIR="+dest)
	var files []string
	err := filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode()&0o044 != 0o044 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		if !d.IsDir() {
			files = append(files, path)
		}
		return nil
	})
	if err != nil || len(files) != 10 {
		t.Errorf("%v: %q", err, files)
	}
	strict(t, dir, "make", "uninstall", "DESTDIR="+dest)
	for _, path := range files {
		if _, err := os.Stat(path); (err == nil) != (filepath.Base(path) == "other") {
			t.Errorf("%s after uninstall: %v", path, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dest, "usr/share/kata-containers")); err == nil {
		t.Error("the guest's directory is left")
	}
}

func TestPackageOfAStrictUser(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Skip("the host has no dpkg-deb")
	}
	dir := fakeCheckout(t)
	strict(t, dir, "deploy/deb.sh")
	packages, err := filepath.Glob(filepath.Join(dir, "build/*.deb"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("%v, %q", err, packages)
	}
	for line := range strings.Lines(strict(t, dir, "dpkg-deb", "--contents", packages[0])) {
		if mode, _, _ := strings.Cut(line, " "); mode[1:] != "rwxr-xr-x" && mode != "-rw-r--r--" {
			t.Errorf("in the package: %s", line)
		}
	}
}

// A source archive that was unpacked in another project's repository has no commit.
func TestVersionWithinAnotherRepository(t *testing.T) {
	dir := fakeCheckout(t)
	outer := filepath.Dir(dir)
	for _, args := range [][]string{
		{"init", "--quiet"}, {"-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "--quiet", "--allow-empty", "--message", "x"},
	} {
		strict(t, outer, "git", args...)
	}
	version, err := os.ReadFile(filepath.Join(dir, "VERSION"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strict(t, dir, "deploy/version.sh"); got != string(version) {
		t.Errorf("within another repository: %q, want %q", got, version)
	}
	for _, args := range [][]string{
		{"init", "--quiet"}, {"-c", "user.name=x", "-c", "user.email=x@localhost", "commit", "--quiet", "--allow-empty", "--message", "x"},
	} {
		strict(t, dir, "git", args...)
	}
	if got := strict(t, dir, "deploy/version.sh"); !strings.HasPrefix(got, strings.TrimSpace(string(version))+"-dev.") {
		t.Errorf("in its own repository: %q", got)
	}
}
