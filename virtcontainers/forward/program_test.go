package forward

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

func TestKindsOfRefusal(t *testing.T) {
	for _, test := range []struct {
		name                   string
		err, missing           error
		notImplemented, denied bool
	}{
		{"kernel without sk_lookup", unix.EINVAL, ebpf.ErrNotSupported, true, false},
		{"without sk_lookup, and forbidden", unix.EPERM, errors.Join(nil, ebpf.ErrNotSupported), true, false},
		{"kernel without BPF", unix.ENOSYS, unix.ENOSYS, true, false},
		{"forbidden", unix.EPERM, unix.EPERM, false, true},
		{"too many programs", unix.E2BIG, nil, false, false},
	} {
		err := explain("load", test.err, test.missing)
		if !errors.Is(err, test.err) || errors.Is(err, errdefs.ErrNotImplemented) != test.notImplemented ||
			errors.Is(err, errdefs.ErrPermissionDenied) != test.denied {
			t.Errorf("%s: %v, want not implemented %v, permission denied %v", test.name, err, test.notImplemented, test.denied)
		}
	}
}

// Without the capabilities the error names them and has the right kind.
func TestWithoutCapabilities(t *testing.T) {
	s := newSpace(t)
	ns, err := os.Open(s.path)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	listeners, err := listenIn(ns)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(listeners)
	exempt, err := newExempt()
	if err != nil {
		t.Fatal(err)
	}
	defer exempt.Close()
	for _, cap := range []uint{unix.CAP_BPF, unix.CAP_NET_ADMIN} {
		err := without(t, cap, func() error {
			link, err := steer(ns, listeners, exempt)
			if err == nil {
				link.Close()
			}
			return err
		})
		if !errors.Is(err, errdefs.ErrPermissionDenied) {
			t.Errorf("without capability %d: %v", cap, err)
		}
	}
}

// without calls f on a thread that lacks a capability and CAP_SYS_ADMIN, which
// implies it.
func without(t *testing.T, lost uint, f func() error) error {
	t.Helper()
	done := make(chan error)
	go func() { // The thread ends with the goroutine.
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&header, &data[0]); err != nil {
			done <- err
			return
		}
		for _, c := range []uint{lost, unix.CAP_SYS_ADMIN} {
			data[c/32].Effective &^= 1 << (c % 32)
		}
		if err := unix.Capset(&header, &data[0]); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}
