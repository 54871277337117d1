package oci

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// run, which lasts as long as its container, does the same with runc and with
// kata-runtime.
func TestRun(t *testing.T) { sameAsRunc(t, playRun) }

func playRun(t *testing.T, program string) (rows []string) {
	t.Helper()
	r := newRuntime(t, program)
	note := func(name, format string, args ...any) { rows = append(rows, name+": "+fmt.Sprintf(format, args...)) }
	left := func() string { return r.call("list", "-q").out }

	in, inW := pipe(t)
	if _, err := io.WriteString(inW, "word\n"); err != nil {
		t.Fatal(err)
	}
	_ = inW.Close()
	out, errs := create(t), create(t)
	code := r.command([3]*os.File{in, out, errs}, "run", "--bundle", r.bundle("cat; echo wrong >&2; exit 5", nil), "r1")
	note("run", "%d %q %q, left %q", code, content(t, out), content(t, errs), left())

	res := r.call("run", "--keep", "-b", r.bundle("echo kept; exit 3", nil), "r2")
	state := r.state("r2")
	note("keep", "%d %q, %s, has a pid %v", res.code, res.out, state.Status, state.PID != 0)
	note("same id", "%d", r.call("run", "-b", r.bundle("true", nil), "r2").code)
	note("delete", "%d, left %q", r.call("delete", "r2").code, left())

	pidFile := filepath.Join(t.TempDir(), "pid")
	res = r.call("run", "-d", "--pid-file", pidFile, "-b", r.bundle("trap 'exit 43' TERM; while :; do sleep 0.1; done", nil), "r3")
	note("detach", "%d, %s", res.code, r.state("r3").Status)
	note("kill", "%d", r.call("kill", "r3", "KILL").code)
	note("exit", "%d", reap(t, r.pid(pidFile)))
	note("delete detached", "%d, left %q", r.call("delete", "r3").code, left())

	note("no bundle", "%d, left %q", r.call("run", "-b", "/nowhere", "r4").code, left())
	return rows
}
