package pci

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
)

func TestAwait(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		after time.Duration // when look answers
		err   error         // with what
		want  error
		took  time.Duration
	}{
		"there":  {0, nil, nil, 0},
		"late":   {4 * Poll, nil, nil, 4 * Poll},
		"broken": {2 * Poll, broken, broken, 2 * Poll},
		"never":  {2 * Timeout, nil, ErrLate, Timeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := WithTimeout(t.Context())
				defer cancel()
				began := time.Now()
				n, err := Await(ctx, func() (int, error) {
					if time.Since(began) < test.after {
						return 0, errdefs.ErrNotFound
					}
					return 7, test.err
				})
				if !errors.Is(err, test.want) || (test.want == nil && n != 7) {
					t.Errorf("%d, %v, want %v", n, err, test.want)
				}
				if took := time.Since(began); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
			})
		})
	}
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Await(ctx, func() (int, error) { return 0, errdefs.ErrNotFound })
		if !errors.Is(err, context.DeadlineExceeded) || !errdefs.IsNotFound(err) {
			t.Error(err)
		}
	})
}
