package crio

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/cri/images"
)

const (
	// nodeRoot is where the installer finds the node, as its pod does.
	nodeRoot = workDir + "/node"
	// nodeConfig is the node's own configuration of CRI-O, at CRI-O's own path.
	nodeConfig = "/etc/crio/crio.conf"
	installed  = "/opt/kata"
)

// kata-runtime install makes a node's CRI-O run pods, an upgrade leaves those
// that run alone, and uninstall leaves the node as it was.
func TestInstall(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), sceneTimeout)
	defer cancel()
	newNode(t)
	before := tree(t, "/etc", "/opt")
	first := install(ctx, t, "one")
	d := startCRIO(ctx, t)
	defer func() { stopDaemon(t, d) }()
	if why := crictl(ctx, "", "pull", images.Busybox).failure(); why != "" {
		t.Fatalf("pull: %s", why)
	}
	old := newPod(ctx, t, "old")
	old.onVersion(ctx, first)

	second := install(ctx, t, "two")
	if second == first {
		t.Fatal("the second version is the first")
	}
	old.onVersion(ctx, first)
	if why := uninstall(ctx); !strings.Contains(why, "pods run") {
		t.Errorf("uninstall below a pod: %q", why)
	}
	stopDaemon(t, d)
	d = startCRIO(ctx, t)
	old.onVersion(ctx, first)
	later := newPod(ctx, t, "new")
	later.onVersion(ctx, second)
	for _, s := range []*stage{old, later} {
		s.must(crictl(ctx, "", "rmp", "-f", s.pod))
	}

	// A shim ends soon after its pod was removed.
	if why := old.until("", func() string { return uninstall(ctx) }); why != "" {
		t.Fatalf("uninstall: %s", why)
	}
	stopDaemon(t, d)
	compareTrees(t, before, tree(t, "/etc", "/opt"))
	d = startCRIO(ctx, t)
	if r := crictl(ctx, "", "runp", "-r", byShim, old.podFile("refused", nil)); r.code == 0 || !strings.Contains(r.errors, byShim) {
		t.Errorf("a pod after uninstall: %+v", r)
	}
}

// newNode makes the private host a node with CRI-O and without Katabox, until the
// test ends.
func newNode(t *testing.T) {
	t.Helper()
	const aside = kataConfigDir + ".aside"
	// CRI-O makes the directory of policies when it starts.
	err := errors.Join(os.Rename(kataConfigDir, aside), os.MkdirAll(filepath.Join(filepath.Dir(nodeConfig), "policies"), 0o755),
		os.WriteFile(nodeConfig, []byte(nodeConf()), 0o600), os.MkdirAll(nodeRoot, 0o755))
	if err == nil {
		err = unix.Mount("/", nodeRoot, "", unix.MS_BIND|unix.MS_REC, "")
	}
	if err == nil {
		err = unix.Mount("", nodeRoot, "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := errors.Join(unix.Unmount(nodeRoot, unix.MNT_DETACH), os.RemoveAll(filepath.Dir(nodeConfig)), os.Rename(aside, kataConfigDir))
		if err != nil {
			t.Error(err)
		}
	})
}

// install installs a version with that mark and returns its directory.
func install(ctx context.Context, t *testing.T, mark string) string {
	t.Helper()
	from := t.TempDir()
	if err := layout.Stage(from, mark); err != nil {
		t.Fatal(err)
	}
	// This machine may have a containerd too.
	r := kataRuntime(ctx, "install", "--host-root", nodeRoot, "--from", from, "--engine", "crio", "--restart", "never")
	if r.code != 0 {
		t.Fatalf("install: %+v", r)
	}
	version, err := os.Readlink(installed + "/current")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(installed, version)
}

// uninstall returns why it failed, or "".
func uninstall(ctx context.Context) string {
	return kataRuntime(ctx, "uninstall", "--host-root", nodeRoot, "--restart", "never").failure()
}

func kataRuntime(ctx context.Context, args ...string) result {
	return command(ctx, "", filepath.Join(layout.Bin(), "kata-runtime"), args...)
}

// newPod runs a pod with one container, and removes it at the test's end at the
// latest.
func newPod(ctx context.Context, t *testing.T, name string) *stage {
	t.Helper()
	s := &stage{T: t, handler: byShim, dir: filepath.Join(workDir, "install-"+name), rows: map[string]string{}}
	s.runPod(ctx, name)
	t.Cleanup(func() { crictl(context.WithoutCancel(ctx), "", "rmp", "-f", s.pod) })
	s.rows["container"] = s.run(ctx, "sleeper", images.Busybox, []string{"sleep", "100000"}, nil)
	return s
}

// onVersion checks that the pod's container runs in a machine of a version's
// shim.
func (s *stage) onVersion(ctx context.Context, version string) {
	s.Helper()
	kernel := s.must(crictl(ctx, "", "exec", "-s", s.rows["container"], "uname", "-r"))
	var host unix.Utsname
	if err := unix.Uname(&host); err != nil {
		s.Fatal(err)
	}
	if own := unix.ByteSliceToString(host.Release[:]); kernel == own {
		s.Errorf("the container has the host's kernel, %s", own)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.Fatal(err)
	}
	for _, path := range lines {
		line, _ := os.ReadFile(path) // it may have ended
		program, _ := os.Readlink(filepath.Join(filepath.Dir(path), "exe"))
		if program == version+"/bin/containerd-shim-kata-v2" && strings.Contains(string(line), s.pod) {
			return
		}
	}
	s.Errorf("pod %s has no shim of %s", s.pod, version)
}

// tree returns the modes, contents and targets of what is below directories.
func tree(t *testing.T, dirs ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			text := info.Mode().String()
			switch {
			case info.Mode().IsRegular():
				data, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text += " " + string(data)
			case info.Mode()&fs.ModeSymlink != 0:
				target, err := os.Readlink(path)
				if err != nil {
					return err
				}
				text += " " + target
			}
			all[path] = text
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func compareTrees(t *testing.T, before, after map[string]string) {
	t.Helper()
	for path, text := range after {
		if was, there := before[path]; !there || was != text {
			t.Errorf("%s is left, or changed: %.100q", path, text)
		}
	}
	for path := range before {
		if _, there := after[path]; !there {
			t.Errorf("%s is gone", path)
		}
	}
}
