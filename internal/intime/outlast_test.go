package intime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// What outlasts a context ends a while after it, also if it is cancelled long before its
// deadline, and leaves nothing when it is done.
func TestOutlast(t *testing.T) {
	const by = time.Minute
	over := errors.New("it is over")
	for name, test := range map[string]struct {
		deadline, cancelled, done time.Duration // 0 is none
		want                      time.Duration
		cause                     error
	}{
		"cancelled":                     {0, time.Second, 0, time.Second + by, over},
		"cancelled before its deadline": {time.Hour, time.Second, 0, time.Second + by, over},
		"its deadline passes":           {time.Hour, 0, 0, time.Hour + by, context.DeadlineExceeded},
		"done before":                   {time.Hour, 0, time.Second, time.Second, context.Canceled},
		"done after it was cancelled":   {time.Hour, time.Second, 2 * time.Second, 2 * time.Second, context.Canceled},
		"done, without a deadline":      {0, time.Second, 2 * time.Second, 2 * time.Second, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if test.deadline != 0 {
					var release context.CancelFunc
					ctx, release = context.WithTimeout(ctx, test.deadline)
					defer release()
				}
				began := time.Now()
				after, done := Outlast(ctx, by)
				defer done()
				if end, ok := after.Deadline(); ok != (test.deadline != 0) || ok && end.Sub(began) != test.deadline+by {
					t.Errorf("its deadline is %v, %v", end.Sub(began), ok)
				}
				if test.cancelled != 0 {
					time.AfterFunc(test.cancelled, func() { cancel(over) })
				}
				if test.done != 0 {
					time.AfterFunc(test.done, done)
				}
				<-after.Done()
				if took := time.Since(began); took != test.want || !errors.Is(context.Cause(after), test.cause) {
					t.Errorf("it ended after %v, because of: %v", took, context.Cause(after))
				}
			})
		})
	}
}
