package container

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// An exec in a container that has ended fails because of that, whether or not its init
// has been waited for. An engine takes "no such file or directory" for a missing program.
func TestExecInAnEndedContainer(t *testing.T) {
	for name, test := range map[string]struct{ byStage, isReaped bool }{
		"not reaped": {false, false}, "reaped": {false, true},
		"by stage, not reaped": {true, false}, "by stage, reaped": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("cat")
			in, err := cmd.StdinPipe()
			if err := errors.Join(err, cmd.Start()); err != nil {
				t.Fatal(err)
			}
			init, err := openInit(cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = init.close(passBarriers) }()
			if init.isEnding() {
				t.Error("it has not ended")
			}
			if err := errors.Join(in.Close(), awaitEnd(init)); err != nil {
				t.Fatal(err)
			}
			if test.isReaped {
				err = cmd.Wait()
			} else {
				defer func() { _ = cmd.Wait() }()
			}
			c := &Container{id: "c", init: init, execs: execDefaults{byStage: test.byStage}}
			if _, execErr := c.Exec(&specs.Process{Args: []string{"true"}, Cwd: "/"}, Stdio{}); err != nil || !errdefs.IsFailedPrecondition(execErr) ||
				!errors.Is(execErr, libcontainer.ErrNotRunning) || strings.Contains(execErr.Error(), "no such file") {
				t.Errorf("%v, %v", execErr, err)
			}
		})
	}
}

// awaitEnd waits until the process has ended, and does not reap it.
func awaitEnd(init initProcess) error {
	const limit = 5000 // ms
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(init.fd.Fd()), Events: unix.POLLIN}}, limit)
	if err == nil && n == 0 {
		err = errors.New("the process does not end")
	}
	return err
}
