package factory

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

func TestPauses(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for times, want := range map[int]time.Duration{
		0: time.Minute, 1: time.Minute, 2: 2 * time.Minute, 6: 32 * time.Minute, 7: time.Hour, 10: time.Hour, 1 << 40: time.Hour,
	} {
		f := Failure{At: at, Times: times}
		if got := f.Next().Sub(at); got != want {
			t.Errorf("%d times: tried again after %v, want %v", times, got, want)
		}
		if f.due(at.Add(want - 1)) {
			t.Errorf("%d times: due too early", times)
		}
		if !f.due(at.Add(want)) || !f.due(at.Add(-time.Second)) {
			t.Errorf("%d times: not due when it should be", times)
		}
	}
}

// After a failure every Claim is refused for a time, and a day later the
// failure is forgotten.
func TestFailure(t *testing.T) {
	in, _ := testInputs(t)
	key := keyOf(t, in)
	s := Store{Dir: filepath.Join(t.TempDir(), "store")}
	if err := s.Fail(key, errors.New("nowhere")); err != nil || exists(s.Dir) {
		t.Errorf("fail without a store: %v; the directory is there: %v", err, exists(s.Dir))
	}
	makeOne(t, s, in)
	for i := range 3 {
		if err := s.Drop(key, errors.New(strings.Repeat("x", 2*maxWhy))); err != nil {
			t.Fatal(err)
		}
		f, ok := s.Failure(key)
		if !ok || f.Times != i+1 || len(f.Why) != maxWhy || f.Key != key {
			t.Errorf("drop %d: %+v, %v", i, f, ok)
		}
	}
	if _, err := s.Claim(key); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "not tried again before") {
		t.Errorf("claim after failures: %v", err)
	}
	old := Failure{Key: key, Why: "long ago", At: time.Now().Add(-forgetAfter - time.Hour), Times: 7}
	if err := s.write(failedPrefix+string(key), old); err != nil {
		t.Fatal(err)
	}
	l, err := s.Claim(key)
	if err != nil {
		t.Fatalf("claim after a day: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Fail(key, errors.New("again")); err != nil {
		t.Error(err)
	}
	if f, _ := s.Failure(key); f.Times != 1 {
		t.Errorf("what failed before a day counts: %+v", f)
	}
	if err := s.RemoveAll(); err != nil || exists(s.Dir) {
		t.Errorf("remove all: %v; the directory is there: %v", err, exists(s.Dir))
	}
}

// Whatever the directory's name is, its failures are removed with it.
func TestFailureInADirectoryLikeAPattern(t *testing.T) {
	in, _ := testInputs(t)
	s := Store{Dir: filepath.Join(t.TempDir(), "[b]*")}
	makeOne(t, s, in)
	if err := s.Fail(keyOf(t, in), errors.New("why")); err != nil {
		t.Fatal(err)
	}
	if err := s.RemoveAll(); err != nil || exists(s.Dir) {
		t.Errorf("remove all: %v; the directory is there: %v", err, exists(s.Dir))
	}
}

// The content of a failure file is not trusted.
func TestBadFailure(t *testing.T) {
	in, _ := testInputs(t)
	key := keyOf(t, in)
	s := Store{Dir: t.TempDir()}
	for _, text := range []string{"", "{}", `{"Key":"00"}`, strings.Repeat(" ", maxInfo+1)} {
		if err := os.WriteFile(filepath.Join(s.Dir, failedPrefix+string(key)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if f, ok := s.Failure(key); ok {
			t.Errorf("%.20q is read as %+v", text, f)
		}
		if list, err := s.Failures(); err != nil || len(list) != 0 {
			t.Errorf("%.20q: %v, %v", text, list, err)
		}
	}
	makeOne(t, s, in) // removes it
	if exists(filepath.Join(s.Dir, failedPrefix+string(key))) {
		t.Error("a file that says nothing stays")
	}
}

// A maker that was canceled has not failed; one that timed out has.
func TestFailureOfContext(t *testing.T) {
	in, _ := testInputs(t)
	s := Store{Dir: t.TempDir()}
	stuck := func(ctx context.Context, _ Place) error {
		<-ctx.Done()
		return ctx.Err()
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Make(canceled, Job{Inputs: in}, stuck); !errors.Is(err, context.Canceled) {
		t.Errorf("make: %v", err)
	}
	if list, err := s.Failures(); err != nil || len(list) != 0 {
		t.Errorf("failures after a cancellation: %v, %v", list, err)
	}
	late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer stop()
	if _, err := s.Make(late, Job{Inputs: in}, stuck); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("make: %v", err)
	}
	if list, err := s.Failures(); err != nil || len(list) != 1 {
		t.Errorf("failures after a timeout: %v, %v", list, err)
	}
}

// A try counts as a failure until it succeeds: its process may be killed.
func TestAttempt(t *testing.T) {
	in, _ := testInputs(t)
	key := keyOf(t, in)
	s := Store{Dir: t.TempDir()}
	for i := range 3 {
		a, err := s.Begin(key)
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := s.Failure(key); !ok || f.Times != i+1 || s.Due(key) {
			t.Errorf("try %d has begun: %+v, %v", i, f, ok)
		}
		if i == 0 {
			continue // it is killed
		}
		if err := a.Failed(errInTest); err != nil {
			t.Fatal(err)
		}
		if f, ok := s.Failure(key); !ok || f.Times != i+1 || f.Why != errInTest.Error() {
			t.Errorf("try %d has failed: %+v, %v", i, f, ok)
		}
	}
	a, err := s.Begin(key)
	if err := errors.Join(err, a.Succeeded(), a.Succeeded()); err != nil {
		t.Fatal(err)
	}
	if f, ok := s.Failure(key); ok || !s.Due(key) {
		t.Errorf("after a success: %+v", f)
	}
}

var errInTest = errors.New("in test")
