package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

const (
	workDir = "/run/katabox-upgrade"
	socket  = workDir + "/c.sock"
	config  = "/etc/containerd/config.toml"
)

// startTimeout bounds containerd's start, and testTimeout the whole test.
const startTimeout, testTimeout = time.Minute, 10 * time.Minute

var (
	layout  harness.Layout
	release harness.Release // the distribution's, as on a node
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: containerd needs root")
		os.Exit(0)
	}
	os.Exit(host.RunTests(m, prepare, removeCgroups))
}

func prepare() (err error) {
	if layout, err = harness.FindLayout(); err != nil {
		return err
	}
	if release, err = harness.FindRelease(layout, "1.6"); err != nil {
		return err
	}
	for _, path := range []string{"/opt", release.Path("containerd"), layout.Shim(), layout.Kernel()} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run \"make deps build guest-image\"", err)
		}
	}
	if err := os.RemoveAll("/etc/kata-containers"); err != nil {
		return err
	}
	text := fmt.Sprintf("version = 2\nroot = \"%[1]s/root\"\nstate = \"%[1]s/state\"\n"+
		"disabled_plugins = [\"io.containerd.internal.v1.opt\"]\n[grpc]\n  address = %[2]q", workDir, socket)
	for _, dir := range []string{workDir, filepath.Dir(config), layout.Logs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(config, []byte(text), 0o600)
}

// removeCgroups removes the containers' cgroups, which are on the real machine
// and not on the private host.
func removeCgroups() error {
	roots, err := filepath.Glob("/sys/fs/cgroup/*/" + host.Name())
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range append(roots, "/sys/fs/cgroup/"+host.Name()) {
		var dirs []string
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for _, dir := range slices.Backward(dirs) {
			if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
			}
		}
	}
	return errors.Join(errs...)
}

// startContainerd starts the node's containerd, with the images, and ends it with
// the test.
func startContainerd(ctx context.Context, t *testing.T) {
	t.Helper()
	log, err := os.Create(filepath.Join(layout.Logs(), "upgrade-containerd.log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(release.Path("containerd"))
	cmd.Env = append(os.Environ(), "PATH=/opt/kata/bin:"+release.Dir+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		_ = log.Close()
	})
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		if _, err := ctr(ctx, "version"); err == nil {
			break
		}
		select {
		case <-ctx.Done():
			t.Fatal("containerd does not answer: " + log.Name())
		case <-time.After(50 * time.Millisecond):
		}
	}
	archive, err := image.Build(ctx, filepath.Join(layout.Build(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	mustCtr(ctx, t, "images", "import", "--snapshotter", "native", archive)
}

func ctr(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, release.Path("ctr"), append([]string{"--address", socket, "--namespace", host.Name()}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("ctr %s: %w: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out)), err
}

// remove removes a container, whatever its state.
func remove(ctx context.Context, id string) error {
	_, err := ctr(ctx, "task", "rm", "--force", id)
	_, rmErr := ctr(ctx, "container", "rm", id)
	return errors.Join(err, rmErr)
}

// start starts a container that sleeps. It is removed at the test's end if it
// still exists: its cgroups are on the real machine.
func start(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	t.Cleanup(func() { _ = remove(context.WithoutCancel(ctx), id) })
	mustCtr(ctx, t, "run", "--runtime", harness.Kata.Type, "--snapshotter", "native", "-d", image.Busybox, id, "sleep", "100000")
}

func mustCtr(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := ctr(ctx, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// newBuild lays out what was built as an installation. The mark makes it another
// version.
func newBuild(t *testing.T, mark string) string {
	t.Helper()
	dir := t.TempDir()
	if err := layout.Stage(dir, mark); err != nil {
		t.Fatal(err)
	}
	return dir
}

// runtime runs the kata-runtime of the checkout on this host.
func runtime(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(layout.Bin(), "kata-runtime"), args...).CombinedOutput()
	return string(out), err
}

func install(ctx context.Context, t *testing.T, from string) (version string) {
	t.Helper()
	if out, err := runtime(ctx, "install", "--from", from, "--restart", "never"); err != nil {
		t.Fatalf("install: %v: %s", err, out)
	}
	version, err := os.Readlink("/opt/kata/current")
	if err != nil {
		t.Fatal(err)
	}
	return "/opt/kata/" + version
}

// shims returns the processes of a version's shim, by the containers that they were
// started for.
func shims(t *testing.T, version string) map[string]int {
	t.Helper()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, dir := range processes {
		program, err := os.Readlink(filepath.Join(dir, "exe"))
		if err != nil || program != version+"/bin/containerd-shim-kata-v2" {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		words := strings.Split(string(line), "\x00")
		if i := slices.Index(words, "-id"); i >= 0 && i+1 < len(words) {
			if found[words[i+1]], err = strconv.Atoi(filepath.Base(dir)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return found
}

// killShim kills a container's shim, and waits until containerd has cleaned up
// after it.
func killShim(ctx context.Context, t *testing.T, pid int, id string) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for {
		tasks := mustCtr(ctx, t, "task", "ls")
		if !strings.Contains(tasks, id+" ") || strings.Contains(tasks, "STOPPED") {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatal("containerd keeps the task of a killed shim: " + tasks)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
