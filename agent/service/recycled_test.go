package service

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// An init that has been waited for, whose exit is not reported yet because an exec
// hangs, has a PID that may be another process's: nothing of that is taken for the
// container's.
func TestPIDOfAReapedInit(t *testing.T) {
	pod, runtime := testPod(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	create(t, pod, "c")
	target := runtime.last
	target.hangs = true
	t.Cleanup(func() { target.execs[0].exit(0) })
	if _, err := pod.start(t.Context(), "c", ""); err != nil {
		t.Fatal(err)
	}
	startExec(t, pod, "c", "e")
	target.init.exit(0)
	<-target.init.reaped
	if _, err := pod.DialSocket(t.Context(), "c", l.Addr().String(), unix.SOCK_STREAM); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("dial: %v", err)
	}
	req := createRequest(t, "d")
	req.Options = packed(t, &api.ContainerConfig{Spec: []byte("{}"), SharePidNamespace: true, PidNamespaceOf: "c"})
	if _, err := pod.create(t.Context(), req); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("join its PID namespace: %v", err)
	}
}
