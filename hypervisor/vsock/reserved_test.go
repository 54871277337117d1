package vsock

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/mdlayher/socket"
	mdvsock "github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"
)

// Our device has connections from all the reserved ports to each port of the guest,
// and no more.
func TestDialReserved(t *testing.T) {
	tr, _ := boot(t, accept)
	used := map[uint32]Conn{}
	for range ReservedPorts - 1 {
		c, err := tr.DialReserved(t.Context(), 1)
		must(t, err)
		used[c.LocalAddr().(*mdvsock.Addr).Port] = c
	}
	for port := uint32(1); port < ReservedPorts; port++ {
		if used[port] == nil {
			t.Fatalf("port %d was not used", port)
		}
	}
	if _, err := tr.DialReserved(t.Context(), 1); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("one more: %v, want EADDRINUSE", err)
	}
	c, err := tr.DialReserved(t.Context(), 2)
	must(t, err)
	must(t, c.Close())
	c, err = tr.Dial(t.Context(), 1)
	must(t, err)
	if port := c.LocalAddr().(*mdvsock.Addr).Port; port < ReservedPorts {
		t.Errorf("an ordinary connection came from port %d", port)
	}
}

func TestBindReserved(t *testing.T) {
	for _, tc := range []struct {
		name string
		free func(port uint32) bool
		fail error
	}{
		{"all free", func(uint32) bool { return true }, nil},
		{"one free", func(port uint32) bool { return port == 700 }, nil},
		{"none free", func(uint32) bool { return false }, syscall.EADDRINUSE},
	} {
		var tries []uint32
		port, err := bindReserved(func(sa unix.Sockaddr) error {
			vm := sa.(*unix.SockaddrVM)
			if vm.CID != unix.VMADDR_CID_ANY || vm.Port < 1 || vm.Port >= ReservedPorts {
				t.Errorf("%s: bound to %+v", tc.name, vm)
			}
			tries = append(tries, vm.Port)
			if !tc.free(vm.Port) {
				return syscall.EADDRINUSE
			}
			return nil
		})
		if !errors.Is(err, tc.fail) || err == nil && (port != tries[len(tries)-1] || !tc.free(port)) || len(tries) >= ReservedPorts {
			t.Errorf("%s: port %d, %v, after %d tries", tc.name, port, err, len(tries))
		}
	}
	if _, err := bindReserved(func(unix.Sockaddr) error { return syscall.EACCES }); !errors.Is(err, syscall.EACCES) {
		t.Errorf("without privilege: %v", err)
	}
}

// The host's kernel lets root bind to reserved ports, each once.
func TestKernelBindsReserved(t *testing.T) {
	used := map[uint32]bool{}
	for range 5 {
		c, err := socket.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0, network, nil)
		if errors.Is(err, syscall.EAFNOSUPPORT) {
			t.Skip("this host's kernel has no vsock")
		}
		must(t, err)
		t.Cleanup(func() { _ = c.Close() })
		port, err := bindReserved(c.Bind)
		must(t, err)
		if used[port] {
			t.Errorf("port %d was bound twice", port)
		}
		used[port] = true
	}
}

// insideEnv is set in the process that TestOpenInUserNamespace starts.
const insideEnv = "KATABOX_TEST_INSIDE_USERNS"

// In a user namespace root may not use reserved ports: the device is our own then,
// whatever the host has.
func TestOpenInUserNamespace(t *testing.T) {
	if os.Getenv(insideEnv) != "" {
		tr, err := Open(t.Context(), Options{VhostPath: os.DevNull})
		must(t, err)
		if tr.Kind() != KindVhostUser {
			t.Errorf("it is %s", tr.Kind())
		}
		must(t, tr.Close())
		return
	}
	c, err := socket.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0, network, nil)
	if err != nil {
		t.Skip("this host's kernel has no vsock:", err)
	}
	must(t, c.Close())
	program, err := os.Executable()
	must(t, err)
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	ids := []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids}
	if out, err := cmd.CombinedOutput(); errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		t.Skip("this host has no user namespaces:", err)
	} else if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
