package command

import (
	"context"
	"errors"
	"os/signal"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// stubborn is a process whose shim is stopped.
type stubborn struct {
	asked int
	last  uint32
}

func (p *stubborn) Kill(ctx context.Context, signal uint32) error {
	p.asked++
	p.last = signal
	<-ctx.Done()
	return context.Cause(ctx)
}

func (p *stubborn) Resize(ctx context.Context, _, _ uint16) error { return p.Kill(ctx, 0) }

// A signal that the shim does not answer keeps no later one waiting: another one that
// is to end the command gives it up, if the shim has had time to answer.
func TestShimThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := makeSession(t.Context(), nil), new(stubborn)
		go s.watch()
		s.attach(p)
		s.signals <- unix.SIGTERM
		synctest.Wait()
		s.signals <- unix.SIGINT
		s.signals <- unix.SIGWINCH
		synctest.Wait()
		if s.waiting.Err() != nil || p.asked != 1 {
			t.Errorf("at once: %v, asked %d times", context.Cause(s.waiting), p.asked)
		}
		time.Sleep(patience)
		for range 100 {
			s.signals <- unix.SIGCONT
		}
		synctest.Wait()
		if s.waiting.Err() != nil {
			t.Errorf("by SIGCONT: %v", context.Cause(s.waiting))
		}
		s.signals <- unix.SIGTERM
		<-s.waiting.Done()
		var by signalError
		if err := s.blame(s.waiting.Err()); !errors.As(err, &by) || by.sig != unix.SIGTERM {
			t.Errorf("it ends with %v", err)
		}
		s.close()
	})
}

// A signal that comes when the command has started, but this process does not know yet,
// reaches it; if the shim does not answer, the next one gives it up.
func TestSignalAtTheEndOfTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := makeSession(t.Context(), nil), new(stubborn)
		go s.watch()
		s.signals <- unix.SIGTERM
		synctest.Wait()
		if s.ctx.Err() == nil || s.waiting.Err() != nil {
			t.Errorf("the start: %v, the wait: %v", context.Cause(s.ctx), context.Cause(s.waiting))
		}
		s.attach(p)
		synctest.Wait()
		if p.asked != 1 || p.last != uint32(unix.SIGTERM) {
			t.Errorf("%d signals reached the command, the last is %d", p.asked, p.last)
		}
		time.Sleep(patience)
		if err := s.blame(errors.New("lost")); err.Error() != "lost" {
			t.Errorf("an error that no signal caused: %v", err)
		}
		s.signals <- unix.SIGQUIT
		synctest.Wait()
		var by signalError
		if !errors.As(context.Cause(s.waiting), &by) || by.sig != unix.SIGQUIT {
			t.Errorf("a later signal: %v", context.Cause(s.waiting))
		}
		s.close()
	})
}

// After the command's end, a signal that is to end it gives up the rest of its output,
// and goes to no shim.
func TestSignalGivesUpOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := makeSession(t.Context(), nil), new(stubborn)
		go s.watch()
		s.attach(p)
		s.end()
		s.signals <- unix.SIGINT
		<-s.waiting.Done()
		var by signalError
		if !errors.As(context.Cause(s.waiting), &by) || by.sig != unix.SIGINT || p.asked != 0 {
			t.Errorf("it ends with %v, asked %d times", context.Cause(s.waiting), p.asked)
		}
		s.close()
	})
}

// What ends meanwhile is not waited for.
func TestSessionEndsWhileTheShimIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := makeSession(t.Context(), nil)
		go s.watch()
		s.attach(new(stubborn))
		s.signals <- unix.SIGINT
		synctest.Wait()
		s.close()
	})
}

// heedless is a process that ignores all signals.
type heedless struct{ got []unix.Signal }

func (p *heedless) Kill(_ context.Context, signal uint32) error {
	p.got = append(p.got, unix.Signal(signal))
	return nil
}

func (p *heedless) Resize(context.Context, uint16, uint16) error { return nil }

// interrupt sends a session SIGINT at these times after its start, and returns what
// reached the command, and what was said.
func interrupt(t *testing.T, isRun bool, at ...time.Duration) (got []unix.Signal, said []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var say func(string)
		if isRun {
			say = func(text string) { said = append(said, text) }
		}
		s, p := makeSession(t.Context(), say), new(heedless)
		go s.watch()
		s.attach(p)
		for i, when := range at {
			time.Sleep(when - slices.Concat([]time.Duration{0}, at)[i])
			s.signals <- unix.SIGINT
			synctest.Wait()
		}
		s.close()
		got = p.got
	})
	return got, said
}

// Each interrupt reaches the command. Only the third in a short time kills the container,
// which the second says; an exec's command is never killed.
func TestInterrupts(t *testing.T) {
	const i, k, s = unix.SIGINT, unix.SIGKILL, time.Second
	for _, test := range []struct {
		name  string
		isRun bool
		at    []time.Duration
		want  []unix.Signal
		said  int
	}{
		{"one", true, []time.Duration{0}, []unix.Signal{i}, 0},
		{"two", true, []time.Duration{0, s}, []unix.Signal{i, i}, 1},
		{"three", true, []time.Duration{0, s, 2 * s}, []unix.Signal{i, i, k}, 1},
		{"four", true, []time.Duration{0, s, 2 * s, 2 * s}, []unix.Signal{i, i, k, k}, 1},
		{"now and then", true, []time.Duration{0, 4 * s, 8 * s, 12 * s}, []unix.Signal{i, i, i, i}, 0},
		{"the third is late", true, []time.Duration{0, 2 * s, 4 * s}, []unix.Signal{i, i, i}, 2},
		{"of an exec", false, []time.Duration{0, 0, 0, 0, 0}, []unix.Signal{i, i, i, i, i}, 0},
	} {
		got, said := interrupt(t, test.isRun, test.at...)
		if !slices.Equal(got, test.want) || len(said) != test.said {
			t.Errorf("%s: the command got %v, want %v; said %q", test.name, got, test.want, said)
		}
	}
}

// A signal that was ignored when the program started, as nohup makes SIGHUP, ends
// neither the start of a command nor the command.
func TestIgnoredSignalsStayIgnored(t *testing.T) {
	signal.Ignore(unix.SIGHUP)
	t.Cleanup(func() { signal.Reset(unix.SIGHUP) })
	s := newSession(t.Context(), nil)
	defer s.close()
	signalSelf(t, unix.SIGHUP)
	signalSelf(t, unix.SIGTERM) // the higher number: it comes after it
	<-s.ctx.Done()
	var by signalError
	if !errors.As(context.Cause(s.ctx), &by) || by.sig != unix.SIGTERM {
		t.Errorf("the start is %v", context.Cause(s.ctx))
	}
	if !signal.Ignored(unix.SIGHUP) {
		t.Error("SIGHUP is no longer ignored, and child processes would get it")
	}
}
