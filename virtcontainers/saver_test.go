package virtcontainers_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/hypervisor/fake"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/checkpoint"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

// saver is a pod whose only container runs and can be saved.
type saver struct {
	*pod
	c   *virtcontainers.Container
	vm  *fake.VM
	io  *testIO
	dir string // for the checkpoint; it is missing
	// heard and said are what the container has written and read so far. They are
	// those of the saved container too, if it was restored.
	heard, said string
}

func newSaver(t *testing.T) *saver {
	t.Helper()
	return newSaverWith(t)
}

// newSaverWith makes a saver whose container has those mounts.
func newSaverWith(t *testing.T, mounts ...specs.Mount) *saver {
	t.Helper()
	return saverOn(t, newHost(t), nil, func(*virtcontainers.Options) {}, mounts...)
}

// saverOn makes a saver in a network; nil is none.
func saverOn(t *testing.T, host *fakeguest.Host, net *netInMemory, change func(*virtcontainers.Options), mounts ...specs.Mount) *saver {
	t.Helper()
	platform := host.Platform()
	if net != nil {
		platform = net.platform(platform)
	}
	p, err := bootOn(t, host, platform, change)
	if err != nil {
		t.Fatal(err)
	}
	s := &saver{pod: p, vm: host.VM(), io: newIO(allStreams), dir: filepath.Join(t.TempDir(), "made")}
	opts := p.options(sandboxID, s.io)
	opts.Bundle.Spec.Mounts = append(opts.Bundle.Spec.Mounts, mounts...)
	if s.c, err = p.Create(t.Context(), opts, ignore); err != nil {
		t.Fatal(err)
	}
	p.start(initOf(t, s.c))
	return s
}

// save saves the container, which runs on.
func (s *saver) save() {
	s.t.Helper()
	if err := s.c.Checkpoint(s.t.Context(), virtcontainers.CheckpointOptions{Dir: s.dir}); err != nil {
		s.t.Fatal(err)
	}
}

// saveAndEnd saves the container, and waits until its sandbox has ended.
func (s *saver) saveAndEnd() {
	s.t.Helper()
	if err := s.c.Checkpoint(s.t.Context(), virtcontainers.CheckpointOptions{Dir: s.dir, Exit: true}); err != nil {
		s.t.Fatal(err)
	}
	s.awaitStopped()
	s.observer.expect(s.t, s.ID+"=137")
}

func (s *saver) file() string { return filepath.Join(s.dir, checkpoint.File) }

// checkNoFile checks that a checkpoint that failed has left no file.
func (s *saver) checkNoFile() {
	s.t.Helper()
	if _, err := os.Lstat(s.file()); err == nil {
		s.t.Errorf("%s is left", s.file())
	}
}

// record reads the checkpoint's record.
func (s *saver) record() checkpoint.Record {
	s.t.Helper()
	f, err := os.Open(s.file())
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	r, err := checkpoint.Open(f, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return r.Record
}

// says has the container write a text, and read it.
func (s *saver) says(text string) {
	s.t.Helper()
	s.writes(text)
	if err := s.io.write(text); err != nil {
		s.t.Errorf("input: %v", err)
	}
	s.said += text
	s.checkHeard()
}

// writes has the container write a text to stdout and to stderr.
func (s *saver) writes(text string) {
	s.t.Helper()
	s.heard += text
	if err := s.host.Agent.Write(s.ID, "", text); err != nil {
		s.t.Errorf("stdout: %v", err)
	}
	if err := s.host.Agent.WriteError(s.ID, "", text); err != nil {
		s.t.Errorf("stderr: %v", err)
	}
}

// checkHeard waits until the engine has all of the container's output.
func (s *saver) checkHeard() {
	s.t.Helper()
	eventually(s.t, "output "+s.heard, func() bool {
		stdout, stderr := s.io.output()
		return stdout == s.heard && stderr == s.heard
	})
}

// checkGoesOn checks that the container runs, that its stdio works, and that its
// exit is reported.
func (s *saver) checkGoesOn() {
	s.t.Helper()
	if state := s.c.Info().State; state != virtcontainers.Running {
		s.t.Errorf("it is %s", state)
	}
	if s.vm.Paused() {
		s.t.Error("its machine is paused")
	}
	s.says("after ")
	s.io.CloseStdin()
	if read, err := s.host.Agent.ReadInput(s.ID, ""); read != s.said || err != nil {
		s.t.Errorf("the container has read %q, %v, want %q", read, err, s.said)
	}
	s.exits(s.ID, "", 3)
	s.awaitStopped()
	s.observer.expect(s.t, s.ID+"=3")
	s.checkHeard()
}

// calls lists the calls to the guest of those methods, in order.
func (s *saver) calls(methods ...string) []string {
	return slices.DeleteFunc(s.host.Agent.Calls(), func(call string) bool {
		method, _, _ := strings.Cut(call, " ")
		return !slices.Contains(methods, method)
	})
}
