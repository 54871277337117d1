package engines

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// docker checkpoint, with the shim by name: Docker 28 ends no container that it has saved,
// because it passes that on only to runc's shim (its libcontainerd, getCheckpointOptions).
func TestCheckpointDocker28(t *testing.T) {
	s := savingStage(t, (&docker{experimental: true}).startAs28)
	ctx := t.Context()
	name := s.container("main")
	net := s.thing("network", "net")
	s.must(ctx, "network", "create", net)
	s.counts(ctx, name, "--network", net)
	s.must(ctx, "checkpoint", "create", name, "one")
	s.is(ctx, name, "running 0")
	s.refused(ctx, name)

	s.must(ctx, "pause", name) // so that its files are those of the checkpoint
	s.create(ctx, name, "two")
	s.must(ctx, "kill", name)
	s.is(ctx, name, "exited 137")
	saved := s.counted(ctx, name, 0)
	for range 2 {
		from := len(s.lines(ctx, name))
		s.must(ctx, "start", "--checkpoint", "two", name)
		s.goesOn(ctx, name, from, saved)
		s.reached(ctx, name, net)
		s.must(ctx, "stop", "-t", "60", name)
		s.is(ctx, name, "exited 5")
	}
	s.listed(ctx, name, "one", "two")
	s.must(ctx, "checkpoint", "rm", name, "two")
	s.listed(ctx, name, "one")
	if r := s.run(ctx, "start", "--checkpoint", "two", name); r.code == 0 || !strings.Contains(r.stderr, "checkpoint two does not exist") {
		t.Errorf("a removed checkpoint: %+v", r)
	}
}

// With kata-runtime as Docker's OCI runtime a container ends once it is saved.
func TestCheckpointDocker20(t *testing.T) {
	s := savingStage(t, (&docker{experimental: true}).startAsDebian)
	if name := s.engine.Name(); name != "docker-20.10" {
		t.Skipf("this Debian has %s, which calls the shim by name", name)
	}
	ctx := t.Context()
	name := s.container("main")
	s.counts(ctx, name)
	s.must(ctx, "checkpoint", "create", "--leave-running", name, "one")
	s.is(ctx, name, "running 0")
	s.refused(ctx, name)
	s.create(ctx, name, "two")
	if code := s.must(ctx, "wait", name); code != "137" {
		t.Errorf("wait: %s", code)
	}
	s.is(ctx, name, "exited 137")
	saved := s.counted(ctx, name, 0)
	s.must(ctx, "start", "--checkpoint", "two", name)
	s.goesOn(ctx, name, saved, saved)
	s.must(ctx, "stop", "-t", "60", name)
	s.is(ctx, name, "exited 5")
}

// savingStage starts an engine whose containers of Katabox can be saved, for a test.
func savingStage(t *testing.T, start starter) *stage {
	t.Helper()
	if !bed.runtime.VM {
		t.Skip("runc needs CRIU")
	}
	saving := kataConfig
	saving.QEMU, saving.Virtiofsd = bed.layout.SavingQEMU(t), harness.OwnVirtiofs
	if err := saving.Write(bed.layout, kataConfigPath); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kataConfig.Write(bed.layout, kataConfigPath); err != nil {
			t.Error(err)
		}
	})
	s := &stage{t: t, engine: started(t, start), runtime: harness.Kata, scene: "checkpoint", rows: sheet{}}
	mark := size(s.engine.LogPath())
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		s.clear(ctx)
		if err := host.PodsGone(ctx); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s's log:\n%s", s.engine.Name(), since(s.engine.LogPath(), mark))
		}
	})
	return s
}

// must runs the client to its end and returns its output.
func (s *stage) must(ctx context.Context, args ...string) string {
	s.t.Helper()
	r := s.run(ctx, args...)
	if r.code != 0 {
		s.t.Fatalf("%s: %+v", strings.Join(args, " "), r)
	}
	return r.out()
}

// is checks a container's state and exit code.
func (s *stage) is(ctx context.Context, name, want string) {
	s.t.Helper()
	if got := ends(ctx, s, name, want); got != want {
		s.t.Errorf("it is %s, want %s", got, want)
	}
}

// counts starts a container that counts in its log and in a file, and serves a
// page. It exits with 5 when it is asked to end.
func (s *stage) counts(ctx context.Context, name string, flags ...string) {
	s.t.Helper()
	const script = `trap 'exit 5' TERM; mkdir /www; echo page >/www/index.html; httpd -h /www
n=0; while sleep 0.05; do n=$((n+1)); echo $n >>/count; echo $n; done`
	args := append([]string{"run", "-d", "--name", name}, flags...)
	s.must(ctx, append(args, image.Busybox, "sh", "-c", script)...)
	s.counted(ctx, name, 5)
}

// lines returns the lines of a container's log.
func (s *stage) lines(ctx context.Context, name string) []string {
	s.t.Helper()
	return strings.Fields(s.must(ctx, "logs", name))
}

// counted waits until the log has more than that many lines, which must be all
// numbers from 1, and returns how many there are.
func (s *stage) counted(ctx context.Context, name string, more int) int {
	s.t.Helper()
	var lines []string
	s.eventually(ctx, "true", func() string {
		lines = s.lines(ctx, name)
		return strconv.FormatBool(len(lines) > more)
	})
	s.checkCount(lines, 0)
	return len(lines)
}

// checkCount checks that lines are the numbers after from.
func (s *stage) checkCount(lines []string, from int) {
	s.t.Helper()
	for i, line := range lines {
		if want := strconv.Itoa(from + i + 1); line != want {
			s.t.Fatalf("line %d after %d is %q: %q", i, from, line, lines)
		}
	}
}

// goesOn checks that a container whose log had so many lines runs, and counts on from
// saved: no line is lost, and none comes twice. Its file has the same numbers at its end.
func (s *stage) goesOn(ctx context.Context, name string, had, saved int) {
	s.t.Helper()
	s.is(ctx, name, "running 0")
	var more []string
	s.eventually(ctx, "true", func() string {
		more = s.lines(ctx, name)[had:]
		return strconv.FormatBool(len(more) > 5)
	})
	if len(more) == 0 {
		s.t.Fatal("it writes nothing more")
	}
	s.checkCount(more, saved)
	last := strings.Fields(s.must(ctx, "exec", name, "tail", "-n", "3", "/count"))
	first, err := strconv.Atoi(last[0])
	if err != nil || first < saved {
		s.t.Errorf("its file ends with %q, and had %d numbers when it was saved", last, saved)
	}
	s.checkCount(last, first-1)
}

// reached checks that another container of its network gets the page, by its name.
func (s *stage) reached(ctx context.Context, name, net string) {
	s.t.Helper()
	cmd := s.engine.Command(ctx, harness.Runc, "run", "--rm", "--network", net, "-v", bed.ask+":/ask:ro", image.Busybox, "/ask", "http://"+name)
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "page\n" {
		s.t.Errorf("get the page: %v: %q", err, out)
	}
}

// refused checks that a container with an exec is not saved, and runs on.
func (s *stage) refused(ctx context.Context, name string) {
	s.t.Helper()
	s.must(ctx, "exec", "-d", name, "tail", "-f", "/dev/null")
	r := s.run(ctx, "checkpoint", "create", name, "none")
	if r.code == 0 || !strings.Contains(r.stderr, "it has the exec") {
		s.t.Errorf("with an exec: %+v", r)
	}
	s.listed(ctx, name, "one")
	s.must(ctx, "exec", name, "killall", "tail")
	s.counted(ctx, name, len(s.lines(ctx, name)))
}

// create saves a container whose last exec has ended. Docker deletes it at some time.
func (s *stage) create(ctx context.Context, name, checkpoint string) {
	s.t.Helper()
	code := s.eventually(ctx, "0", func() string {
		return strconv.Itoa(s.run(ctx, "checkpoint", "create", name, checkpoint).code)
	})
	if code != "0" {
		s.t.Fatalf("checkpoint create: exit %s", code)
	}
}

// listed checks which checkpoints a container has.
func (s *stage) listed(ctx context.Context, name string, want ...string) {
	s.t.Helper()
	out := strings.Fields(strings.TrimPrefix(s.must(ctx, "checkpoint", "ls", name), "CHECKPOINT NAME"))
	if got := strings.Join(out, " "); got != strings.Join(want, " ") {
		s.t.Errorf("it has the checkpoints %q, want %q", got, want)
	}
}
