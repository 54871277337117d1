package cri

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/console"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/cri/images"
	"github.com/katabox/katabox/tests/harness"
)

// An exec's terminal has the client's size, and follows its changes.
func TestCrictlExecTerminal(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		p := runp(ctx, t, e, "terminal")
		id := p.start(ctx, t, []string{"sleep", "1000"}, nil)
		term := startInTerminal(t, e.CrictlCmd(ctx, "exec", "--interactive", "--tty", id, "sh"), console.WinSize{Height: 21, Width: 78})
		term.say(t, "stty size\n")
		term.await(ctx, t, "21 78")
		if err := term.Resize(console.WinSize{Height: 33, Width: 99}); err != nil {
			t.Fatal(err)
		}
		// The new size passes through two daemons: poll until it arrives, or
		// the test times out.
		term.say(t, "until [ \"$(stty size)\" = '33 99' ]; do sleep 0.1; done; echo resi''zed\n")
		term.await(ctx, t, "resized")
		term.say(t, "exit 7\n")
		err := term.wait()
		if err == nil || !strings.Contains(term.out.String(), "exit code 7") && !strings.Contains(err.Error(), "7") {
			t.Errorf("end of exec: %v, output %q", err, term.out)
		}
	})
}

// terminal is a program that runs in a pseudoterminal of ours.
type terminal struct {
	console.Console
	out   *harness.Buffer
	ended func() error // cmd.Wait
	done  chan struct{}
}

// startInTerminal starts cmd in a new terminal; the test's end ends both.
func startInTerminal(t *testing.T, cmd *exec.Cmd, size console.WinSize) *terminal {
	t.Helper()
	master, name, err := console.NewPty()
	if err != nil {
		t.Fatal(err)
	}
	if err := master.Resize(size); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	ended, err := harness.StartOwn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	slave.Close()
	term := &terminal{Console: master, out: &harness.Buffer{}, ended: ended, done: make(chan struct{})}
	go func() {
		defer close(term.done)
		_, _ = io.Copy(term.out, master) // ends with EIO when the program has
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails when it has ended
		master.Close()
	})
	return term
}

func (s *terminal) say(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(s, text); err != nil {
		t.Fatal(err)
	}
}

func (s *terminal) await(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	if err := s.out.Await(ctx, text); err != nil {
		t.Fatal(err)
	}
}

// wait returns the program's result once all its output has arrived.
func (s *terminal) wait() error {
	err := s.ended()
	<-s.done
	return err
}

// What is written to an attached container arrives, and so does its end.
func TestCrictlAttach(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		p := runp(ctx, t, e, "attach")
		id := p.start(ctx, t, []string{"sh", "-c", "while read -r l; do echo \"got $l\"; done; echo end"},
			map[string]any{"stdin": true, "stdin_once": true})
		out := &harness.Buffer{}
		cmd := e.CrictlCmd(ctx, "attach", "--stdin", id)
		cmd.Stdout, cmd.Stderr = out, out
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for _, word := range []string{"one", "two"} {
			fmt.Fprintln(stdin, word)
			if err := out.Await(ctx, "got "+word+"\n"); err != nil {
				t.Fatal(err)
			}
		}
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("attach: %v, output %q", err, out)
		}
		if code := p.awaitState(ctx, t, id, "CONTAINER_EXITED"); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if got := out.String(); !strings.HasSuffix(got, "end\n") {
			t.Errorf("output %q does not end with the container's last line", got)
		}
	})
}

// Followed logs arrive while the container runs, complete and in order, and end
// with it.
func TestCrictlLogsFollow(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		p := runp(ctx, t, e, "logs")
		// It continues on request, so that there is output after the following
		// has begun.
		id := p.start(ctx, t, []string{"sh", "-c",
			"echo first; until [ -e /go ]; do sleep 0.1; done; for i in $(seq 1 200); do echo line $i; done"}, nil)
		out := &harness.Buffer{}
		cmd := e.CrictlCmd(ctx, "logs", "--follow", id)
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if err := out.Await(ctx, "first\n"); err != nil {
			t.Fatal(err)
		}
		p.do(ctx, t, "exec", "--sync", id, "touch", "/go")
		if err := cmd.Wait(); err != nil {
			t.Errorf("logs --follow: %v", err)
		}
		var want strings.Builder
		want.WriteString("first\n")
		for i := range 200 {
			fmt.Fprintf(&want, "line %d\n", i+1)
		}
		if out.String() != want.String() {
			t.Errorf("followed %q", out)
		}
	})
}

// forwarded matches the line in which crictl prints the local port that it
// chose.
var forwarded = regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) -> 80`)

// A server in the pod is reached through a port of this machine.
func TestCrictlPortForward(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		p := runp(ctx, t, e, "forward")
		id := p.start(ctx, t, nil, map[string]any{"image": map[string]any{"image": images.Web}})
		// The client ends at the first connection that fails.
		p.exec(ctx, t, id, "sh", "-c", "until wget -q -O /dev/null http://127.0.0.1/; do sleep 0.1; done")
		forwarding, stop := context.WithCancel(ctx)
		cmd := e.CrictlCmd(forwarding, "port-forward", p.id, ":80")
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			stop()
			_ = cmd.Wait() // killed
		}()
		lines := bufio.NewScanner(stdout)
		for lines.Scan() {
			if m := forwarded.FindStringSubmatch(lines.Text()); m != nil {
				checkPage(ctx, t, "http://"+m[1])
				return
			}
		}
		t.Fatalf("port-forward ended without a port: %v", lines.Err())
	})
}

// checkPage requests the page until it arrives, or 60 s have passed: the server
// may still be starting.
func checkPage(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		body, err := page(ctx, url)
		if err == nil {
			if !strings.Contains(body, "Welcome to nginx") {
				t.Errorf("page: %q", body)
			}
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("no page: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func page(ctx context.Context, url string) (string, error) {
	// One try must not take all the time: a forwarded port that leads
	// nowhere may never answer.
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}
