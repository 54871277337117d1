package qemu

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/internal/fdtest"
)

// qemuPath finds QEMU or skips the test.
func qemuPath(t testing.TB) string {
	t.Helper()
	path, err := exec.LookPath("qemu-system-x86_64")
	if err != nil {
		t.Skipf("this test needs QEMU: %v", err)
	}
	return path
}

func testSpec(t testing.TB, kernel string) hypervisor.Spec {
	t.Helper()
	accel, _ := DetectAccel(Host{})
	spec := hypervisor.Spec{
		ID:        "test",
		Path:      qemuPath(t),
		Accel:     accel,
		VCPUs:     1,
		MemoryMiB: 64,
		Kernel:    kernel,
		Seccomp:   allDenied,
	}
	if os.Geteuid() == 0 {
		spec.Jail = &hypervisor.Jail{UID: testUser, GID: testUser}
	}
	return spec
}

const (
	// allDenied is the default sandbox option of a machine.
	allDenied = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"
	// testUser is a user id that a test host does not use.
	testUser = 1879048198
)

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// launch starts a machine that is gone when the test ends.
func launch(t testing.TB, spec hypervisor.Spec) *VM {
	t.Helper()
	vm, err := New(Options{}).Launch(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := vm.Stop(testContext(t)); err != nil {
			t.Error(err)
		}
	})
	return vm.(*VM)
}

func awaitDone(t testing.TB, vm hypervisor.VM) {
	t.Helper()
	select {
	case <-vm.Done():
	case <-testContext(t).Done():
		t.Fatalf("the machine did not end; console:\n%s", vm.ConsoleTail())
	}
}

func TestStop(t *testing.T) {
	kernel := testKernel(t, "", idle)
	for _, running := range []bool{false, true} {
		vm := launch(t, testSpec(t, kernel))
		if running {
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := vm.Stop(testContext(t)); err != nil {
				t.Error(err)
			}
		}
		if !errors.Is(vm.Err(), hypervisor.ErrStopped) {
			t.Errorf("running %v: Err: %v", running, vm.Err())
		}
		if err := unix.Kill(vm.PID(), 0); !errors.Is(err, unix.ESRCH) {
			t.Errorf("running %v: the process is there: %v", running, err)
		}
	}
}

func TestStopWithEndedContext(t *testing.T) {
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := vm.Stop(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	awaitDone(t, vm)
}

func TestKilledFromOutside(t *testing.T) {
	for _, tt := range []struct {
		signal unix.Signal
		want   string
	}{{unix.SIGKILL, "signal: killed"}, {unix.SIGTERM, "host-signal"}} {
		vm := launch(t, testSpec(t, testKernel(t, "", idle)))
		if err := vm.Resume(testContext(t)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := unix.Kill(vm.PID(), tt.signal); err != nil {
			t.Fatal(err)
		}
		awaitDone(t, vm)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%v: seen after %v", tt.signal, took)
		}
		err := vm.Err()
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, hypervisor.ErrPowerOff) || errors.Is(err, hypervisor.ErrStopped) {
			t.Errorf("%v: Err: %v", tt.signal, err)
		}
		if err := vm.Attach(testContext(t), hypervisor.VhostVsock{ID: "x", File: devNull(t)}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: Attach after the end: %v", tt.signal, err)
		}
	}
}

func TestMachineDiesWithParent(t *testing.T) {
	parent := exec.Command(os.Args[0], qemuPath(t))
	parent.Env = append(os.Environ(), parentEnv+"="+testKernel(t, "", idle))
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	_ = parent.Process.Kill()
	_ = parent.Wait()
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent says %q", line)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return // gone already
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 10_000)
	if err != nil || n == 0 {
		_ = unix.Kill(pid, unix.SIGKILL)
		t.Errorf("QEMU outlives its parent: %v", err)
	}
}

func TestLaunchFails(t *testing.T) {
	kernel := testKernel(t, "", idle)
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("no kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(*hypervisor.Spec)
		want   string
	}{
		"missing kernel":        {func(s *hypervisor.Spec) { s.Kernel = "/nonexistent/vmlinux" }, "find kernel: stat /nonexistent/vmlinux"},
		"relative kernel":       {func(s *hypervisor.Spec) { s.Kernel = "vmlinux" }, "not an absolute path"},
		"kernel is a folder":    {func(s *hypervisor.Spec) { s.Kernel = "/" }, "not a regular file"},
		"missing initrd":        {func(s *hypervisor.Spec) { s.Initrd = "/nonexistent/initrd" }, "find initrd: stat /nonexistent/initrd"},
		"missing QEMU":          {func(s *hypervisor.Spec) { s.Path = "/nonexistent/qemu" }, "find monitor executable: stat /nonexistent/qemu"},
		"QEMU is not a program": {func(s *hypervisor.Spec) { s.Path, s.Jail = junk, nil }, "permission denied"},
		"another program":       {func(s *hypervisor.Spec) { s.Path = "/bin/false" }, "exit status 1"},
		"kernel is junk":        {func(s *hypervisor.Spec) { s.Kernel = junk }, "exit status 1; it printed: qemu"},
		"unknown board":         {func(s *hypervisor.Spec) { s.MachineType = "q35-none" }, "unsupported machine type"},
		"bad accelerator":       {func(s *hypervisor.Spec) { s.Accelerators = "sauce=hot" }, "sauce"},
		"bad CPU feature":       {func(s *hypervisor.Spec) { s.CPUFeatures = "warp=on" }, "warp"},
		"relative network":      {func(s *hypervisor.Spec) { s.NetworkNamespace = "netns" }, `network namespace "netns": not an absolute path`},
		"missing network":       {func(s *hypervisor.Spec) { s.NetworkNamespace = "/nonexistent/netns" }, "open network namespace: open /nonexistent/netns"},
		"network is junk":       {func(s *hypervisor.Spec) { s.NetworkNamespace = junk }, junk + " is not a network namespace"},
		"bad seccomp setting":   {func(s *hypervisor.Spec) { s.Seccomp = "maybe" }, "maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := testSpec(t, kernel)
			tt.change(&spec)
			vm, err := New(Options{}).Launch(testContext(t), spec)
			if err == nil {
				_ = vm.Stop(testContext(t))
				t.Fatal("launched")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

// A distribution's QEMU that was copied elsewhere finds its firmware, where it is
// installed if it was built to look only there.
func TestLaunchCopiedProgram(t *testing.T) {
	for name, path := range map[string]string{"installed": qemuPath(t), "later": "../../build/qemu/usr/bin/qemu-system-x86_64"} {
		t.Run(name, func(t *testing.T) {
			program, err := os.ReadFile(path)
			if err != nil {
				t.Skip(err) // make qemu
			}
			dir := filepath.Join(t.TempDir(), "bin")
			spec := testSpec(t, testKernel(t, "", idle))
			spec.Path = filepath.Join(dir, "qemu")
			if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(spec.Path, program, 0o755)); err != nil {
				t.Fatal(err)
			}
			bare := exec.Command(spec.Path, "-nodefaults", "-machine", "q35", "-display", "none", "-monitor", "stdio", "-S")
			bare.Stdin = strings.NewReader("quit\n")
			if out, err := bare.CombinedOutput(); err != nil {
				t.Skipf("this QEMU does not run elsewhere: %v: %s", err, out)
			}
			launch(t, spec)
		})
	}
}

// A QEMU that hangs before QMP answers is killed.
func TestLaunchIsBounded(t *testing.T) {
	hang := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(hang, []byte("#!/bin/sh\necho thinking >&2\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	spec := testSpec(t, testKernel(t, "", idle))
	spec.Path, spec.Jail = hang, nil // a script
	_, err := New(Options{LaunchTimeout: 300 * time.Millisecond}).Launch(t.Context(), spec)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "thinking") {
		t.Errorf("error: %v", err)
	}
}

func TestNothingLeaks(t *testing.T) {
	kernel := testKernel(t, "", idle)
	ns := testNetns(t)
	cycle := func(i int) {
		spec := testSpec(t, kernel)
		if i%2 == 1 {
			spec.NetworkNamespace = netnsPath(ns)
		}
		if i%4 == 3 {
			spec.CPUFeatures = "warp=on" // fails
		}
		vm, err := New(Options{}).Launch(testContext(t), spec)
		if (err != nil) != (i%4 == 3) {
			t.Fatal(err)
		}
		if err == nil {
			if err := vm.Stop(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cycle(0) // at first the runtime opens its own files
	before := fdtest.Open(t)
	for i := range 20 {
		cycle(i)
	}
	if diff := cmp.Diff(before, fdtest.Open(t)); diff != "" {
		t.Errorf("open files: %s", diff)
	}
	goleak.VerifyNone(t)
}

func TestLargeReply(t *testing.T) {
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	var schema []map[string]any
	if err := vm.mon.Execute(testContext(t), "query-qmp-schema", nil, &schema); err != nil || len(schema) < 100 {
		t.Errorf("%d entries, %v", len(schema), err)
	}
	if !strings.Contains(vm.Version(), ".") || vm.Version() == "0.0.0" {
		t.Errorf("version %q", vm.Version())
	}
}

func TestGuestEndsByItself(t *testing.T) {
	for _, tt := range []struct {
		name, reason string
		end          []byte
	}{
		{"power-off", "guest-shutdown", powerOff},
		{"reset, as after a panic", "guest-reset", reset},
	} {
		t.Run(tt.name, func(t *testing.T) {
			vm := launch(t, testSpec(t, testKernel(t, "last words\r\n", tt.end)))
			if err := vm.Err(); err != nil {
				t.Fatalf("Err of a paused machine: %v", err)
			}
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
			awaitDone(t, vm)
			if err := vm.Err(); !errors.Is(err, hypervisor.ErrPowerOff) || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("Err: %v", err)
			}
			if got := vm.ConsoleTail(); !strings.HasSuffix(got, "last words\n") {
				t.Errorf("console: %q", got)
			}
		})
	}
}
