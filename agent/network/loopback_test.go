package network

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLoopbackUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root for its own network namespace")
	}
	done := make(chan struct{})
	go func() { // The thread ends with the goroutine, and its namespace with it.
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		if up(t) {
			t.Error("lo is up in a new namespace")
		}
		if err := LoopbackUp(); err != nil {
			t.Error(err)
		}
		if !up(t) {
			t.Error("lo is down")
		}
	}()
	<-done
}

func up(t *testing.T) bool {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Error(err)
		return false
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		t.Error(err)
		return false
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		t.Error(err)
	}
	return req.Uint16()&unix.IFF_UP != 0
}
