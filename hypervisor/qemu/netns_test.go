package qemu

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
)

// testNetns makes a network namespace that lives as long as the test, and
// leaves the test where it is.
func testNetns(t testing.TB) *os.File {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	var ns *os.File
	elsewhere(t, func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() error {
		var err error
		ns, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

// inNetns calls f in a network namespace.
func inNetns(t testing.TB, ns *os.File, f func() error) {
	t.Helper()
	elsewhere(t, func() error { return unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET) }, f)
}

// elsewhere calls f with this thread in the network namespace that enter
// enters, and returns to its own.
func elsewhere(t testing.TB, enter, f func() error) {
	t.Helper()
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer home.Close()
	if err := enter(); err != nil {
		t.Fatal(err)
	}
	err = f()
	if err := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); err != nil {
		t.Fatal(err) // the thread stays locked and ends with the test
	}
	runtime.UnlockOSThread()
	if err != nil {
		t.Fatal(err)
	}
}

// netnsPath returns a path by which another thread of this process can open the
// namespace.
func netnsPath(ns *os.File) string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), ns.Fd()) }

// openTap makes a TAP device in ns, or another queue of it. The device
// disappears when all its queues are closed, at the latest at the test's end.
func openTap(t testing.TB, ns *os.File, name string, flags uint16) *os.File {
	t.Helper()
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs TAP devices:", err)
	}
	var tap *os.File
	inNetns(t, ns, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		tap = os.NewFile(uintptr(fd), "tap "+name)
		ifr, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		ifr.SetUint16(flags)
		return unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr)
	})
	t.Cleanup(func() { _ = tap.Close() })
	return tap
}

// testNIC returns a card with n queue pairs on a new TAP device in ns.
func testNIC(t testing.TB, ns *os.File, id string, n int) hypervisor.NIC {
	t.Helper()
	flags := uint16(tapFlags)
	if n > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	nic := hypervisor.NIC{ID: id, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}}
	for range n {
		nic.Taps = append(nic.Taps, openTap(t, ns, "tap-"+id, flags))
	}
	return nic
}

// tapsOf counts the queues of TAP devices that a process has open.
func tapsOf(t testing.TB, pid int) int {
	t.Helper()
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(fds) == 0 {
		t.Fatalf("%d open files, %v", len(fds), err)
	}
	n := 0
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err == nil && strings.HasSuffix(target, "/net/tun") {
			n++
		}
	}
	return n
}

// netdevs returns QEMU's list of its network devices.
func netdevs(t testing.TB, vm *VM) string {
	t.Helper()
	var text string
	args := map[string]string{"command-line": "info network"}
	if err := vm.mon.Execute(testContext(t), "human-monitor-command", args, &text); err != nil {
		t.Fatal(err)
	}
	return text
}
