package service

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// A socket is found as long as its container runs. (This process stands for the
// fake container's.)
func TestDialSocket(t *testing.T) {
	pod, runtime := testPod(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := pod.DialSocket(t.Context(), "c", l.Addr().String(), unix.SOCK_STREAM); !errdefs.IsNotFound(err) {
		t.Errorf("no container: %v", err)
	}
	create(t, pod, "c")
	conn, err := pod.DialSocket(t.Context(), "c", l.Addr().String(), unix.SOCK_STREAM)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	runtime.last.init.exit(0)
	_, init, err := pod.process("c", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := init.wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.DialSocket(t.Context(), "c", l.Addr().String(), unix.SOCK_STREAM); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("a container that has ended: %v", err)
	}
}
