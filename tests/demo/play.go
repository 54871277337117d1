package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/katabox/katabox/tests/harness"
)

// service is one service container of the pod and its expected result.
type service struct {
	name, says string
	script     string
	code       uint32
	terminate  bool // ends only by SIGTERM
}

// services are the pod's. The last one's shell is PID 1 of the container and
// passes the signal to a child without a handler: 143 is then the real exit
// code of a process killed by SIGTERM.
var services = []service{
	{name: "worker", says: "exits 0", code: 0, script: `echo "hello from $(hostname), kernel $(uname -r)"`},
	{name: "failing", says: "prints and exits 42", code: 42, script: `echo "about to fail"; echo "reason: none" >&2; exit 42`},
	{
		name: "daemon", says: "runs until SIGTERM", code: 128 + uint32(syscall.SIGTERM), terminate: true,
		script: `sleep 1000 & trap "kill -TERM $!" TERM; echo ready; wait $!; wait $!`,
	},
}

// play runs the pod and removes it, even on an error.
func play(ctx context.Context, s *stage, d *harness.Daemon) (err error) {
	s.step("create the pod: its pause container")
	pod, err := d.NewPod(ctx, "demo")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, pod.Remove(context.WithoutCancel(ctx)))
		}
	}()
	s.note("pause is running, pid %d on the host", pod.Sandbox.Task.Pid())
	s.step("start %d service containers in it", len(services))
	for _, svc := range services {
		if err := launch(ctx, pod, svc); err != nil {
			return err
		}
		s.note("%-8s started (%s)", svc.name, svc.says)
	}
	s.step("count the pod's processes on the host")
	if err := count(s, d); err != nil {
		return err
	}
	s.step("wait for the service containers")
	for i, svc := range services {
		if err := collect(ctx, s, pod.Services[i], svc); err != nil {
			return err
		}
	}
	s.step("remove the pod")
	return errors.Join(pod.Remove(ctx), d.Settled(ctx))
}

func launch(ctx context.Context, pod *harness.Pod, svc service) error {
	c, err := pod.Add(ctx, harness.ContainerConfig{Name: svc.name, Args: []string{"sh", "-c", svc.script}})
	if err != nil {
		return err
	}
	return c.Start(ctx)
}

// collect ends a service, if needed, and shows its result.
func collect(ctx context.Context, s *stage, c *harness.Container, svc service) error {
	if svc.terminate {
		if err := c.Out.Await(ctx, "ready"); err != nil {
			return err
		}
		if err := c.Task.Kill(ctx, syscall.SIGTERM); err != nil {
			return fmt.Errorf("send SIGTERM to %s: %w", svc.name, err)
		}
	}
	code, err := c.Wait(ctx)
	if err != nil {
		return err
	}
	s.note("%-8s exit code %d", svc.name, code)
	showStream(s, "stdout", c.Out.String())
	showStream(s, "stderr", c.Err.String())
	if code != svc.code {
		return fmt.Errorf("%s: exit code %d, want %d", svc.name, code, svc.code)
	}
	return nil
}

func showStream(s *stage, name, text string) {
	for line := range strings.Lines(text) {
		s.note("  %s| %s", name, line)
	}
}

// count shows the pod's host processes and checks that there is one of each
// kind; containers' processes are on the host only without a VM.
func count(s *stage, d *harness.Daemon) error {
	procs, err := d.Processes()
	if err != nil {
		return err
	}
	kinds := map[string]int{}
	for _, p := range procs {
		kinds[p.Kind()]++
		s.note("%-9s pid %-7d %.60s", p.Kind(), p.PID, p.Args)
	}
	s.note("shims: %d, QEMUs: %d, virtiofsds: %d, stand-ins: %d",
		kinds[harness.KindShim], kinds[harness.KindVMM], kinds[harness.KindVirtiofsd], kinds[harness.KindStandIn])
	if kinds[harness.KindShim] != 1 {
		return fmt.Errorf("%d shims serve the pod, want 1", kinds[harness.KindShim])
	}
	daemons := 0
	if d.ExternalVirtiofsd() != "" {
		daemons = 1
	}
	if d.Runtime().VM && (kinds[harness.KindVMM] != 1 || kinds[harness.KindVirtiofsd] != daemons) {
		return fmt.Errorf("%d QEMUs and %d virtiofsds, want 1 and %d", kinds[harness.KindVMM], kinds[harness.KindVirtiofsd], daemons)
	}
	return nil
}
