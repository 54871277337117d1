package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/standalone/spec"
	"github.com/katabox/katabox/standalone/usernet"
)

// The program of a container's network that ends is a warning, and in the record while
// the container runs.
func TestNetworkEnds(t *testing.T) {
	t.Setenv("TMPDIR", "/var/tmp") // the program's /tmp is another
	m, img := newManager(t)
	bin := t.TempDir()
	program := `#!/bin/sh
while [ $# -gt 0 ]; do
	[ "$1" = --pid ] && echo $$ > "$2"
	shift
done
sleep 1
echo it broke >&2
exit 1
`
	if err := os.WriteFile(filepath.Join(bin, usernet.Pasta), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	said := make(chan string, 10)
	stdio := &Stdio{Warn: func(text string) { said <- text }}
	c, err := m.Create(t.Context(), img, Options{Name: "c", Network: usernet.Pasta, Spec: spec.Options{Args: []string{"sh"}}}, stdio)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := c.Wait(t.Context(), stdio)
		ended <- err
	}()
	select {
	case text := <-said:
		if !strings.Contains(text, usernet.Pasta) || !strings.Contains(text, "it broke") {
			t.Errorf("warning %q", text)
		}
	case <-time.After(10 * time.Second):
		t.Error("the end of the network's program is not noticed")
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		r, err := m.Load("c")
		if err == nil && len(r.Warnings) == 1 && r.State() == "running" {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("its record: %+v, %v", r, err)
			break
		}
	}
	if err := c.Kill(t.Context(), 9); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(said) > 0 {
		t.Errorf("a further warning: %s", <-said)
	}
}

// A log that cannot be written is a warning at once, and in the record.
func TestLogFails(t *testing.T) {
	m, r, dir := newContainer(t, "c")
	said := make(chan string, 10)
	stdio := &Stdio{Warn: func(text string) { said <- text }}
	var err error
	if stdio.log, err = openLog(dir); err != nil {
		t.Fatal(err)
	}
	if stdio.log.file, err = os.OpenFile("/dev/full", os.O_WRONLY, 0); err != nil {
		t.Fatal(err)
	}
	c := &Container{m: m, record: r}
	stop := c.watch(stdio)
	stdio.log.write(stdoutName, []byte("x\n"))
	stdio.log.write(stdoutName, []byte("x\n"))
	select {
	case text := <-said:
		if !strings.Contains(text, "no space left on device") {
			t.Errorf("warning %q", text)
		}
	case <-time.After(patience):
		t.Error("it is not told")
	}
	stop()
	if written, err := m.Load("c"); err != nil || len(written.Warnings) != 1 || len(said) > 0 {
		t.Errorf("its record: %+v, %v; %d further warnings", written, err, len(said))
	}
}
