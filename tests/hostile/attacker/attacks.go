package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attack is a call that a container must be refused. Its arguments are valid as
// far as the kernel checks them before it checks the caller's rights.
type attack struct {
	name string
	call func() error
	// ends is set if the call ends the container that may make it.
	ends bool
}

var attacks = []attack{
	{name: "bpf-program", call: loadProgram},
	{name: "bpf-map", call: makeMap},
	{name: "kexec_load", call: func() error { return call(unix.SYS_KEXEC_LOAD, 0, 0, 0, 0) }},
	{name: "kexec_file_load", call: kexecFile},
	{name: "init_module", call: func() error { return unix.InitModule(make([]byte, 4096), "") }},
	{name: "finit_module", call: finitModule},
	{name: "delete_module", call: func() error { return unix.DeleteModule("virtiofs", unix.O_NONBLOCK) }},
	{name: "reboot", call: func() error { return unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART) }, ends: true},
	{name: "power-off", call: func() error { return unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF) }, ends: true},
	{name: "iopl", call: func() error { return call(unix.SYS_IOPL, 3) }},
	{name: "ioperm", call: func() error { return call(unix.SYS_IOPERM, 0x80, 1, 1) }},
	{name: "open_by_handle_at", call: openHandle},
	{name: "perf_event_open", call: perfEvent},
	{name: "swapon", call: func() error { return callPath(unix.SYS_SWAPON, "/proc/self/exe") }},
	{name: "acct", call: func() error { return unix.Acct("/proc/self/exe") }},
	{name: "settimeofday", call: func() error { return unix.Settimeofday(&unix.Timeval{Sec: 1}) }},
	{name: "syslog", call: func() error { _, err := unix.Klogctl(unix.SYSLOG_ACTION_CLEAR, nil); return err }},
	{name: "ptrace", call: func() error { return reach(seize) }},
	{name: "process_vm_readv", call: func() error { return reach(readMemory) }},
	{name: "open-devices", call: func() error { return eachDevice(openDevice) }},
	{name: "mount-disks", call: func() error { return eachDevice(mountDisk) }},
	{name: "mount-devtmpfs", call: func() error { return mount("devtmpfs", "devtmpfs") }},
	{name: "mount-debugfs", call: func() error { return mount("debugfs", "debugfs") }},
	{name: "mount-tracefs", call: func() error { return mount("tracefs", "tracefs") }},
	{name: "mount-securityfs", call: func() error { return mount("securityfs", "securityfs") }},
	{name: "mount-share", call: func() error { return mount("katabox", "virtiofs") }},
}

// call makes a system call that returns no pointer.
func call(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

func callPath(number uintptr, path string) error {
	text, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	return call(number, uintptr(unsafe.Pointer(text)))
}

// loadProgram loads a socket filter that returns 0, which needs the fewest
// rights of all programs.
func loadProgram() error {
	code := []uint64{0xb7, 0x95} // r0 = 0; exit
	license := []byte("GPL\x00")
	attr := struct {
		kind, count            uint32
		code, license          uint64
		logLevel, logSize      uint32
		log                    uint64
		kernelVersion, progFlg uint32
	}{
		kind: unix.BPF_PROG_TYPE_SOCKET_FILTER, count: uint32(len(code)),
		code: uint64(uintptr(unsafe.Pointer(&code[0]))), license: uint64(uintptr(unsafe.Pointer(&license[0]))),
	}
	return call(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
}

func makeMap() error {
	attr := struct{ kind, key, value, entries, flags uint32 }{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1, 0}
	return call(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
}

// withSelf calls f with a descriptor of this program.
func withSelf(f func(fd int) error) error {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("open the program: %w", err)
	}
	defer file.Close()
	return f(int(file.Fd()))
}

func kexecFile() error {
	return withSelf(func(fd int) error { return unix.KexecFileLoad(fd, fd, "", unix.KEXEC_FILE_NO_INITRAMFS) })
}

func finitModule() error {
	return withSelf(func(fd int) error { return unix.FinitModule(fd, "", 0) })
}

// openHandle opens a file of the root file system by its number.
func openHandle() error {
	root, err := os.Open("/")
	if err != nil {
		return fmt.Errorf("open the root: %w", err)
	}
	defer root.Close()
	fd, err := unix.OpenByHandleAt(int(root.Fd()), unix.NewFileHandle(1, make([]byte, 8)), unix.O_RDONLY)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// perfEvent counts what all processes of CPU 0 do.
func perfEvent() error {
	attr := &unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: unix.PERF_COUNT_SW_CPU_CLOCK}
	fd, err := unix.PerfEventOpen(attr, -1, 0, -1, 0)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

// maxPID is beyond what a small guest has given out when the test runs.
const maxPID = 4096

// reach tries f with each process that is not the container's own. It fails
// with ESRCH if there is none, and with nil if one could be reached.
func reach(f func(pid int) error) error {
	if target, err := os.Readlink("/proc/1/exe"); err == nil && filepath.Base(target) == "init" {
		return nil // the agent's name in its guest
	}
	for pid := 2; pid < maxPID; pid++ {
		if ours(pid) {
			continue
		}
		if err := f(pid); !errors.Is(err, unix.ESRCH) && !ours(pid) {
			return fmt.Errorf("process %d is visible: %w", pid, err)
		}
	}
	return unix.ESRCH
}

// ours reports whether pid is this process, its parent, or one of their threads.
func ours(pid int) bool {
	for _, process := range []int{os.Getpid(), os.Getppid()} {
		if _, err := os.Stat(filepath.Join("/proc", strconv.Itoa(process), "task", strconv.Itoa(pid))); err == nil {
			return true
		}
	}
	return false
}

func seize(pid int) error { return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0) }

func readMemory(pid int) error {
	buf := make([]byte, 1)
	local := []unix.Iovec{{Base: &buf[0], Len: 1}}
	_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0)
	return err
}

// mount mounts a file system on a new directory, and unmounts it.
func mount(source, kind string) error {
	const dir = "/attacker-mount"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make a mount point: %v", err) //nolint:errorlint // its errno is not that of what is tried
	}
	if err := unix.Mount(source, dir, kind, 0, ""); err != nil {
		return err
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}
