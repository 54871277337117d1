package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// lifeTimeout bounds one pod's life on a busy host without KVM.
const lifeTimeout = 10 * time.Minute

// ending is how a container ends, and the exit code that shows it.
type ending struct {
	script string
	signal syscall.Signal // 0: it ends by itself
	code   uint32
}

var endings = []ending{
	{script: "exit 0"},
	{script: "exit 42", code: 42},
	{script: "trap 'exit 3' TERM; echo ready; while :; do sleep 0.1; done", signal: syscall.SIGTERM, code: 3},
	{script: "echo ready; exec sleep 1000", signal: syscall.SIGKILL, code: 137},
	{script: `sh -c 'kill -SEGV $$'; exit $?`, code: 139},
}

// live plays a pod's whole life; n chooses how its container ends.
func live(ctx context.Context, n int) (err error) {
	ctx, cancel := context.WithTimeout(engine.Context(ctx), lifeTimeout)
	defer cancel()
	pod, err := engine.NewPod(ctx, "soak")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pod.Remove(context.WithoutCancel(ctx))) }()
	end := endings[n%len(endings)]
	word := fmt.Sprintf("pod %d", n)
	c, err := pod.Add(ctx, harness.ContainerConfig{Name: "work", Args: []string{"sh", "-c", "echo " + word + "; " + end.script}})
	if err != nil {
		return err
	}
	if err := c.Start(ctx); err != nil {
		return err
	}
	if err := end.bring(ctx, c); err != nil {
		return err
	}
	code, err := c.Wait(ctx)
	if err != nil {
		return err
	}
	if code != end.code || !strings.HasPrefix(c.Out.String(), word+"\n") {
		return fmt.Errorf("%q: exit code %d, want %d; output %q", end.script, code, end.code, c.Out)
	}
	return nil
}

// bring runs an exec in a container that does not end by itself, and ends it.
func (e ending) bring(ctx context.Context, c *harness.Container) error {
	if e.signal == 0 {
		return nil
	}
	if err := c.Out.Await(ctx, "ready"); err != nil {
		return err
	}
	if err := echo(ctx, c); err != nil {
		return err
	}
	return c.Kill(ctx, e.signal)
}

// echo runs a process in a container, and checks its output and exit code.
func echo(ctx context.Context, c *harness.Container) error {
	p, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: []string{"sh", "-c", "cat /proc/1/comm; exit 7"}})
	if err != nil {
		return err
	}
	if code != 7 || p.Out.String() == "" {
		return fmt.Errorf("exec: exit code %d, want 7; output %q", code, p.Out)
	}
	return nil
}
