package chaos

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// playExecEnds strikes while an exec ends by itself.
func playExecEnds(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	c, err := s.service(ctx, idle)
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	s.t.Cleanup(func() { _ = w.Close() })
	const code = 5
	p, err := s.exec(ctx, c, r, fmt.Sprintf("echo ready; read word; exit %d", code))
	if err != nil {
		return err
	}
	s.last().codes = []uint32{code}
	if err := p.Out.Await(ctx, "ready"); err != nil {
		return err
	}
	_, err = s.during(ctx, 40*time.Millisecond, func(context.Context) error {
		_, err := w.Write([]byte("die\n"))
		return err
	})
	return err
}

// The container of playBeingKilled ends up to 200 ms after SIGTERM, with
// termCode.
const (
	termCode   = 6
	termScript = "trap 'exit 6' TERM; echo ready; while :; do sleep 0.2; done"
)

// playBeingKilled strikes while a container is killed, by SIGKILL or SIGTERM: the
// signal is on its way, or was sent and no exit is reported yet.
func playBeingKilled(ctx context.Context, s *scene) error {
	if err := s.openPod(ctx); err != nil {
		return err
	}
	signal, span, codes := syscall.SIGKILL, 60*time.Millisecond, []uint32{killed}
	if s.random.IntN(2) == 0 {
		signal, span, codes = syscall.SIGTERM, 250*time.Millisecond, []uint32{termCode}
	}
	c, err := s.service(ctx, harness.ContainerConfig{Name: "doomed", Args: script(termScript)}, codes...)
	if err != nil {
		return err
	}
	doomed := s.last()
	if err := c.Out.Await(ctx, "ready"); err != nil {
		return err
	}
	answer, err := s.during(ctx, span, func(ctx context.Context) error { return c.Kill(s.d.Context(ctx), signal) })
	doomed.unsure = answer != nil
	return err
}
