package intime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"
)

func TestAnswers(t *testing.T) {
	want := errors.New("wrong")
	if got, err := Call(t.Context(), func() (int, error) { return 7, want }, nil); got != 7 || !errors.Is(err, want) {
		t.Errorf("%d, %v", got, err)
	}
	if err := Do(t.Context(), func() error { return nil }); err != nil {
		t.Error(err)
	}
}

// A call that is given up has its value dropped when it ends, unless it fails, and no
// more than a number of them hang at a time.
func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := errors.New("it is over")
		ctx, cancel := context.WithCancelCause(t.Context())
		answer := make(chan error)
		dropped := 0
		call := func(ctx context.Context) error {
			_, err := Call(ctx, func() (int, error) { return 1, <-answer }, func(n int) { dropped += n })
			return err
		}
		cancel(over)
		for range mostGivenUp {
			if err := call(ctx); !errors.Is(err, over) || !errors.Is(err, ErrUnanswered) {
				t.Fatal(err)
			}
		}
		if err := call(t.Context()); !errdefs.IsUnavailable(err) || errors.Is(err, ErrUnanswered) {
			t.Errorf("one more: %v", err)
		}
		answer <- errors.New("failed")
		for range mostGivenUp - 1 {
			answer <- nil
			synctest.Wait()
		}
		synctest.Wait()
		if n := givenUp.Load(); n != 0 || dropped != mostGivenUp-1 {
			t.Errorf("%d are counted, and %d values were dropped", n, dropped)
		}
		if err := Do(t.Context(), func() error { return nil }); err != nil {
			t.Error(err)
		}
	})
}
