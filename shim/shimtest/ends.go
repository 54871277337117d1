package shimtest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// endsEnv says how many bytes a guest's process writes before it ends by itself, and
// names a file that is made then.
const endsEnv = "KATABOX_TEST_ENDS"

// EndSignal ends a process of EndsItself, and EndCode is its exit code.
const (
	EndSignal = uint32(unix.SIGUSR1)
	EndCode   = 3
)

// EndsItself has the processes in the guests of shims that are started from now on
// write a number of bytes at EndSignal, and then exit by themselves. ended waits until
// one has exited.
func EndsItself(t *testing.T, writes int) (ended func()) {
	t.Helper()
	file := t.TempDir() + "/ended"
	t.Setenv(endsEnv, fmt.Sprintf("%d %s", writes, file))
	return func() {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(file); err == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatal("the process does not end")
			}
		}
	}
}

// endItself makes the guest do what EndsItself says, if the environment says so.
func endItself(agent *fakeguest.Agent) {
	var writes int
	var file string
	if n, err := fmt.Sscan(os.Getenv(endsEnv), &writes, &file); err != nil || n != 2 {
		return
	}
	agent.Hook("Kill", func(_ context.Context, req proto.Message) error {
		r, ok := req.(*task.KillRequest)
		if !ok || r.Signal != EndSignal {
			return nil
		}
		go func() {
			err := agent.Write(r.ID, r.ExecID, strings.Repeat("x", writes))
			if err == nil {
				err = agent.Exit(r.ID, r.ExecID, EndCode)
			}
			if err == nil {
				err = os.WriteFile(file, nil, 0o600)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}()
		return agent.Deafen(r.ID, r.ExecID) // the call alone does not end it
	})
}
