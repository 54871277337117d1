package network

import (
	"fmt"
	"strings"
	"testing"
)

// Two pods on one bridge and the host reach each other, by TCP and UDP over
// both families. Frames are as large as the network's MTU and no larger.
func TestPodsReachEachOther(t *testing.T) {
	for _, mtu := range []int{1400, 9000} {
		t.Run(fmt.Sprint("mtu ", mtu), func(t *testing.T) {
			ctx, d := begin(t)
			bridge := newBridge(t, d, mtu)
			firstNS, secondNS := newNetns(t, d), newNetns(t, d)
			first, second := bridge.join(t, firstNS, "eth0"), bridge.join(t, secondNS, "eth0")
			a, b := newPod(ctx, t, d, firstNS), newPod(ctx, t, d, secondNS)
			a.sameState(ctx, t, firstNS)

			host := bridge.gateways()
			netns("").serve(ctx, t, servers...)

			a.checks(ctx, t, targets(mtu, append(second.addrs(), host...)...)...)
			b.checks(ctx, t, targets(mtu, first.addrs()...)...)
			netns("").checks(t, targets(mtu, append(first.addrs(), second.addrs()...)...)...)
			// The pod reaches itself at its own address.
			a.checks(ctx, t, targets(mtu, first.addrs()...)[:1]...)

			for _, addr := range second.addrs() {
				if _, err := a.run(ctx, "ping", "-c", "1", "-W", "10", addr.String()); err != nil {
					t.Error(err)
				}
			}
			if out, err := a.run(ctx, "ip", "link", "show", "eth0"); err != nil || !strings.Contains(out, fmt.Sprintf(" mtu %d ", mtu)) {
				t.Errorf("ip link shows %q, error %v, want an MTU of %d", out, err, mtu)
			}
		})
	}
}
