package vsock

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/katabox/katabox/hypervisor"
)

// qemuVM is a machine whose only device is the vsock it was given. It is
// configured by its command line; hypervisor/qemu does the same over QMP.
type qemuVM struct {
	image string
	cmd   *exec.Cmd
	out   bytes.Buffer
}

// Attach implements hypervisor.Attacher: it starts the machine.
func (vm *qemuVM) Attach(_ context.Context, d hypervisor.Device) error {
	vm.cmd = exec.Command("qemu-system-x86_64",
		// TCG runs the string instructions of erms and fsrm byte by byte:
		// without them the guest copies more than twice as fast.
		"-M", "q35,accel=tcg,memory-backend=mem", "-cpu", "max,-erms,-fsrm", "-smp", "1,maxcpus=2", "-m", "512M",
		"-object", "memory-backend-memfd,id=mem,size=512M,share=on",
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", filepath.Join(vm.image, "vmlinux"), "-initrd", filepath.Join(vm.image, "initrd.img"),
		"-append", "console=ttyS0 quiet panic=-1",
		"-chardev", "socket,id=c,fd=3", "-device", "vhost-user-vsock-pci,chardev=c")
	vm.cmd.ExtraFiles = []*os.File{d.(hypervisor.VhostUserVsock).Socket}
	vm.cmd.Stdout, vm.cmd.Stderr = &vm.out, &vm.out
	vm.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return vm.cmd.Start()
}

// kill kills the machine.
func (vm *qemuVM) kill() {
	if vm.cmd != nil && vm.cmd.ProcessState == nil {
		_ = vm.cmd.Process.Kill()
		_ = vm.cmd.Wait()
	}
}

// cpuTime returns the CPU time that a process has used (proc(5), stat: utime
// and stime, in hundredths of a second).
func cpuTime(t testing.TB, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(string(f))
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return 10 * time.Millisecond * time.Duration(ticks)
}

// imageDir is removed by TestMain.
var imageDir string

// image builds the guest once for all tests: with guest-image, which takes the
// kernel from Debian's archive or its cache.
var image = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "vsock-guest-")
	if err != nil {
		return "", err
	}
	imageDir = dir
	root, err := filepath.Abs("../..")
	if err != nil {
		return dir, err
	}
	init := filepath.Join(dir, "init")
	for _, args := range [][]string{
		{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", init, "./hypervisor/vsock/internal/testguest"},
		{"run", "./guest-image", "-agent", init, "-out", dir},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return dir, &exec.Error{Name: string(out), Err: err}
		}
	}
	return dir, nil
})

// bootGuest starts a machine with testguest and the transport to it. The guest
// is not up yet.
func bootGuest(t testing.TB, opts Options) (Transport, *qemuVM) {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a machine: left out with -short")
	}
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		t.Skip("needs the package qemu-system-x86:", err)
	}
	dir, err := image()
	if err != nil {
		t.Skip("needs a guest image:", err)
	}
	opts.VhostPath = "/nonexistent"
	tr, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	vm := &qemuVM{image: dir}
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error("close transport:", err)
		}
		vm.kill()
		if t.Failed() {
			t.Log(vm.out.String())
		}
	})
	if err := tr.Attach(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	return tr, vm
}

// dialGuest connects to a port of the guest, waiting for a listener.
func dialGuest(t testing.TB, tr Transport, port uint32) Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := dialUp(ctx, tr, port)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}
