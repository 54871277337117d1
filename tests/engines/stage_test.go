package engines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// callTimeout bounds one call of a client. It is generous: it may boot a
// machine, without KVM and beside others.
const callTimeout = 3 * time.Minute

// stage is a scene's environment: one engine, one runtime.
type stage struct {
	t       *testing.T
	engine  Engine
	runtime harness.Runtime
	scene   string
	rows    sheet
	// complaints are what is wrong with the scene itself.
	complaints []string
	// made are the networks, volumes and images to remove.
	made []thing
}

// thing is something that a scene made: a kind that the client knows, and a
// name.
type thing struct{ kind, name string }

// result is the result of a client's call.
type result struct {
	code           int
	stdout, stderr string
}

// String is the outcome for a row: error messages are not compared.
func (r result) String() string {
	return fmt.Sprintf("exit %d %q", r.code, strings.ReplaceAll(r.stdout, "\r\n", "\n"))
}

// out is the standard output without the last newline.
func (r result) out() string { return strings.TrimSuffix(r.stdout, "\n") }

// line is a line of the standard output by its number from 0, as a terminal would
// show it; empty if there is none.
func (r result) line(n int) string {
	lines := strings.Split(strings.ReplaceAll(r.stdout, "\r\n", "\n"), "\n")
	if n >= len(lines) {
		return ""
	}
	return lines[n]
}

// run runs the client to its end.
func (s *stage) run(ctx context.Context, args ...string) result {
	s.t.Helper()
	return s.runWith(ctx, "", args...)
}

// runWith is run with a standard input.
func (s *stage) runWith(ctx context.Context, stdin string, args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmd := s.engine.Command(ctx, s.runtime, args...)
	cmd.WaitDelay = 5 * time.Second // a grandchild may hold the pipes
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	r := result{code: exitCode(err), stdout: stdout.String(), stderr: stderr.String()}
	s.t.Logf("%s %s: %.1f s, exit %d, %.300q %.600q", s.runtime.Name, strings.Join(args, " "),
		time.Since(start).Seconds(), r.code, r.stdout, r.stderr)
	return r
}

// signalled runs the client until it shows "ready", and then to its end with a
// signal sent to it.
func (s *stage) signalled(ctx context.Context, sig syscall.Signal, args ...string) result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cmd := s.engine.Command(ctx, s.runtime, args...)
	cmd.WaitDelay = 5 * time.Second
	stdout := &harness.Buffer{}
	cmd.Stdout = stdout
	start := time.Now()
	err := cmd.Start()
	if err == nil {
		if err = stdout.Await(ctx, "ready"); err == nil {
			err = cmd.Process.Signal(sig)
		}
		err = errors.Join(err, cmd.Wait())
	}
	r := result{code: exitCode(err), stdout: stdout.String()}
	s.t.Logf("%s %s (%s): %.1f s, exit %d, %.300q", s.runtime.Name, strings.Join(args, " "), sig,
		time.Since(start).Seconds(), r.code, r.stdout)
	return r
}

// exitCode returns what a shell would show in $?; -1 for a client that hung.
func exitCode(err error) int {
	var exit *exec.ExitError
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return 0
	}
	if !errors.As(err, &exit) {
		return -1
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		if status.Signal() == syscall.SIGKILL {
			return -1
		}
		return 128 + int(status.Signal())
	}
	return exit.ExitCode()
}

// note adds a row: the outcome must be the same with both runtimes.
func (s *stage) note(row string, outcome any) {
	s.t.Helper()
	name := s.scene + ": " + row
	if _, ok := s.rows[name]; ok {
		s.complaints = append(s.complaints, fmt.Sprintf("the row %q is noted twice", name))
	}
	s.rows[name] = fmt.Sprint(outcome)
}

// expect is like note, for a known outcome; runc must have it too, otherwise
// the scene does not test what it claims.
func (s *stage) expect(row string, outcome any, want string) {
	s.t.Helper()
	s.note(row, outcome)
	got := fmt.Sprint(outcome)
	if s.runtime.VM || got == want || isQuirk(s.engine.Name(), s.scene+": "+row, got) {
		return
	}
	s.complaints = append(s.complaints, fmt.Sprintf("%s: %s: runc gives %s, the scene wants %s", s.scene, row, got, want))
}

// container is a container's name, made of a word for people.
func (s *stage) container(word string) string {
	return strings.ReplaceAll(s.scene, " ", "-") + "-" + word + "-" + s.runtime.Name
}

// thing is the name of something else, which is removed at the end.
func (s *stage) thing(kind, word string) string {
	name := s.container(word)
	s.made = append(s.made, thing{kind, name})
	return name
}

// start runs a container detached under a name, with a script as its command,
// and reports whether that worked.
func (s *stage) start(ctx context.Context, name, script string, flags ...string) bool {
	s.t.Helper()
	args := append([]string{"run", "-d", "--name", name}, flags...)
	r := s.run(ctx, append(args, image.Busybox, "sh", "-c", script)...)
	word := strings.TrimSuffix(strings.TrimPrefix(name, strings.ReplaceAll(s.scene, " ", "-")+"-"), "-"+s.runtime.Name)
	s.expect("start "+word, r.code, "0")
	return r.code == 0
}

// script runs a container with a script as its command to its end.
func (s *stage) script(ctx context.Context, script string, flags ...string) result {
	s.t.Helper()
	args := append([]string{"run", "--rm"}, flags...)
	return s.run(ctx, append(args, image.Busybox, "sh", "-c", script)...)
}

// eventually calls look until it returns want, and returns what it returned
// last.
func (s *stage) eventually(ctx context.Context, want string, look func() string) string {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		got := look()
		if got == want {
			return got
		}
		select {
		case <-ctx.Done():
			return got
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// logged waits until a container's log holds text, and reports whether it does.
func (s *stage) logged(ctx context.Context, name, text string) bool {
	s.t.Helper()
	return s.eventually(ctx, "true", func() string {
		r := s.run(ctx, "logs", name)
		return fmt.Sprint(strings.Contains(r.stdout+r.stderr, text))
	}) == "true"
}

// inspect returns a field of a container.
func (s *stage) inspect(ctx context.Context, name, format string) string {
	s.t.Helper()
	return s.run(ctx, "inspect", "--type", "container", "--format", format, name).out()
}

// clear removes every container, all of which must be the scene's, and
// everything else that the scene made. It is no error if something is gone; the
// leak check finds what could not be removed.
func (s *stage) clear(ctx context.Context) {
	if ids := strings.Fields(s.run(ctx, "ps", "-a", "-q").stdout); len(ids) > 0 {
		s.run(ctx, append([]string{"rm", "-f"}, ids...)...)
	}
	for i := len(s.made) - 1; i >= 0; i-- {
		args := []string{s.made[i].kind, "rm", s.made[i].name}
		if s.made[i].kind == "pod" { // it contains one of the engine's containers
			args = append(args, "-f")
		}
		s.run(ctx, args...)
	}
}

// file makes a file on the host in a test directory.
func (s *stage) file(dir, name, content string) string {
	s.t.Helper()
	path := dir + "/" + name
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return path
}
