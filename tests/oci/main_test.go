package oci

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/oci"
	"github.com/katabox/katabox/tests/harness"
)

// patience bounds one command; a pod boots in a few seconds if little else
// runs.
const patience = 4 * time.Minute

// suite is what all tests share.
var suite struct {
	kata string
	// rootfs is a root file system with busybox.
	rootfs string
}

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: virtual machines need root")
		return 0
	}
	if _, err := exec.LookPath("busybox"); err != nil {
		fmt.Println("SKIP: busybox is not installed (Debian: busybox-static)")
		return 0
	}
	// The suite waits for the pids that engines get, as conmon does.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "kboci")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := prepare(dir); err != nil {
		fmt.Fprintln(os.Stderr, "prepare the suite:", err)
		return 1
	}
	return m.Run()
}

func prepare(dir string) error {
	layout, err := harness.FindLayout()
	if err != nil {
		return err
	}
	suite.kata = filepath.Join(layout.Root, "bin", "kata-runtime")
	if _, err := os.Stat(suite.kata); err != nil {
		return fmt.Errorf("%w: run make build guest-image", err)
	}
	conf := filepath.Join(dir, "configuration.toml")
	if err := (harness.KataConfig{}).Write(layout, conf); err != nil {
		return err
	}
	suite.rootfs = filepath.Join(dir, "rootfs")
	bin := filepath.Join(suite.rootfs, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	data, err := os.ReadFile(busybox)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(bin, "busybox"), data, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"sh", "cat", "echo", "sleep", "stty", "seq", "uname", "hostname", "grep"} {
		if err := os.Symlink("busybox", filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	return os.Setenv("KATA_CONF_FILE", conf)
}

// runtime is an OCI runtime with the test's own root directory.
type runtime struct {
	t             *testing.T
	program, root string
	dir           string
}

// newRuntime makes a runtime. At the test's end it checks that nothing is left
// in the root, and that no process runs for it.
func newRuntime(t *testing.T, program string) *runtime {
	t.Helper()
	dir := t.TempDir()
	r := &runtime{t: t, program: program, root: filepath.Join(dir, "root"), dir: dir}
	t.Cleanup(func() {
		entries, err := os.ReadDir(r.root)
		for _, e := range entries {
			t.Errorf("left in the root: %s", e.Name())
			_ = r.call("delete", "--force", e.Name())
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		for _, line := range processesOf(r.root) {
			t.Errorf("runs on: %s", line)
		}
	})
	return r
}

// processesOf returns the command lines that contain a path.
func processesOf(path string) []string {
	var lines []string
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err == nil && bytes.Contains(data, []byte(path)) {
			lines = append(lines, strings.ReplaceAll(string(data), "\x00", " "))
		}
	}
	return lines
}

// result is how a command ended.
type result struct {
	code        int
	out, errors string
}

// command calls the runtime with the given stdio and returns its exit code. It
// does not wait until the stdio is closed: a monitor keeps it open.
func (r *runtime) command(stdio [3]*os.File, args ...string) int {
	r.t.Helper()
	cmd := exec.Command(r.program, append([]string{"--root", r.root, "--log", filepath.Join(r.dir, "log.json"), "--log-format", "json"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio[0], stdio[1], stdio[2]
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	timer := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.ExitCode()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return 0
}

// call runs a command and keeps its output in files, which need no reader.
func (r *runtime) call(args ...string) result {
	r.t.Helper()
	null, out, errs := open(r.t, os.DevNull), create(r.t), create(r.t)
	defer null.Close()
	defer out.Close()
	defer errs.Close()
	code := r.command([3]*os.File{null, out, errs}, args...)
	return result{code, content(r.t, out), content(r.t, errs)}
}

func open(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func create(t *testing.T) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	data, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// bundle makes a bundle whose process runs a script.
func (r *runtime) bundle(script string, change func(*specs.Spec)) string {
	r.t.Helper()
	spec := oci.ExampleSpec()
	spec.Process.Terminal, spec.Process.Args = false, []string{"sh", "-c", script}
	spec.Root.Path = suite.rootfs
	if change != nil {
		change(spec)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		r.t.Fatal(err)
	}
	dir := r.t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return dir
}

// pid reads a pid file.
func (r *runtime) pid(name string) int {
	r.t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		r.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		r.t.Fatal(err)
	}
	return pid
}

// reap waits for an orphan and returns its code as conmon computes it.
func reap(t *testing.T, pid int) int {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var status unix.WaitStatus
		got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || time.Now().After(deadline):
			t.Fatalf("process %d does not end as a child of ours: %v", pid, err)
		case got == pid && status.Signaled():
			return 128 + int(status.Signal())
		case got == pid:
			return status.ExitStatus()
		}
	}
}

// state returns the part of the state command's answer that is compared.
func (r *runtime) state(id string) (s struct {
	PID    int    `json:"pid"`
	Status string `json:"status"`
	ID     string `json:"id"`
	Bundle string `json:"bundle"`
}) {
	r.t.Helper()
	if res := r.call("state", id); res.code != 0 || json.Unmarshal([]byte(res.out), &s) != nil {
		r.t.Errorf("state of %s: %+v", id, res)
	}
	return s
}
