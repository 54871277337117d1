package engines

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/katabox/katabox/tests/image"
)

// Output whose reader disappears: "run IMAGE yes | head -1".
func readerScenes() []scene {
	return []scene{{name: "head", play: playHead}}
}

func playHead(ctx context.Context, s *stage) {
	name := s.container("run")
	s.note("run", s.head(ctx, "run", "--rm", "--name", name, image.Busybox, "yes"))
	s.note("run: after", s.run(ctx, "inspect", "--type", "container", "--format", "{{.State.Status}}", name).code)
	name = s.container("main")
	if !s.start(ctx, name, "sleep 1000") {
		return
	}
	s.note("exec", s.head(ctx, "exec", name, "yes"))
}

// head reads one line of the client's output, closes the pipe, and waits for
// the client's end, like "client args | head -1" in a shell.
func (s *stage) head(ctx context.Context, args ...string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmd := s.engine.Command(ctx, s.runtime, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		s.t.Error(err)
	}
	_ = out.Close()
	code := exitCode(cmd.Wait())
	s.t.Logf("%s %v | head -1: exit %d, %q", s.runtime.Name, args, code, line)
	return fmt.Sprintf("exit %d %q", code, line)
}
