package podnet

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// The wait for one that does not end with its context ends with the caller's. What it
// opens later is not kept.
func TestResolverThatIsOpenedLate(t *testing.T) {
	var r resolvers
	addr := netip.AddrFrom4([4]byte{127, 0, 0, 11})
	var cause error
	if mine, err := r.claim(addr, func(err error) { cause = err }); !mine || err != nil {
		t.Fatal(mine, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.close(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(cause, errForwardStopped) {
		t.Errorf("%v, given up with %v", err, cause)
	}
	if err := r.settle(addr, nil, nil); !errors.Is(err, errForwardStopped) {
		t.Error(err)
	}
	r.opening.Done()
	if err := r.close(t.Context()); err != nil || len(r.open) > 0 {
		t.Errorf("%v, %v", err, r.open)
	}
	if mine, err := r.claim(addr, nil); mine || err != nil {
		t.Errorf("after the end: %v, %v", mine, err)
	}
}

func TestLoopbackResolvers(t *testing.T) {
	for _, test := range []struct {
		servers []string
		want    string
	}{
		{[]string{"127.0.0.11"}, "[127.0.0.11]"},
		{[]string{"10.0.0.1", "127.0.0.11", "127.0.0.53", "127.0.0.11"}, "[127.0.0.11 127.0.0.53]"},
		{[]string{"127.0.0.1", "::1", "fe80::1%eth0", "localhost", "", "::ffff:127.0.0.11"}, "[]"},
	} {
		if got := fmt.Sprint(loopbackResolvers(test.servers)); got != test.want {
			t.Errorf("%q: %s, want %s", test.servers, got, test.want)
		}
	}
}
