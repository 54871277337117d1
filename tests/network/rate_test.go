package network

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"
)

// With rate limits there is a token bucket of the right rate for each
// direction, and a transfer is no faster than the buckets allow. It may be
// slower, so the test asserts nothing else about its time.
func TestRateLimits(t *testing.T) {
	needVM(t)
	const receive, send = 10_000_000, 20_000_000
	limits := fmt.Sprintf("[hypervisor.qemu]\nrx_rate_limiter_max_rate = %d\ntx_rate_limiter_max_rate = %d\n", receive, send)
	for _, test := range []struct{ name, config string }{{"tcfilter", limits}, {"macvtap", macvtap + limits}} {
		t.Run(test.name, func(t *testing.T) {
			ctx, d := begin(t)
			configure(t, d, test.config)
			ns := newNetns(t, d)
			l := newBridge(t, d, 0).join(t, ns, "eth0")
			before := settled(ctx, t, ns)
			p := newPod(ctx, t, d, ns)
			rates := bucketRates(t, ns)
			if got := slices.Sorted(maps.Values(rates)); !slices.Equal(got, []int{receive, send}) {
				t.Errorf("token buckets of %v bit/s by link, want one of %d and one of %d", rates, receive, send)
			}
			const size, burst = 2 << 20, 128 << 10
			took := timeTransfer(t, l.addr4, size)
			if least := time.Second * (size - burst) * 8 / receive; took < least {
				t.Errorf("%d bytes took %v, want at least %v at %d bit/s", size, took, least, receive)
			}
			t.Logf("%d bytes there and back: %v", size, took)
			removed(t, "pod", p.Remove)
			eventually(ctx, t, "the namespace after the pod", before, ns.all)
		})
	}
}

var inMilliseconds = regexp.MustCompile(` in ([0-9]+) ms`)

// timeTransfer sends bytes from the host to a pod and back.
func timeTransfer(t *testing.T, to netip.Addr, size int) time.Duration {
	t.Helper()
	out, err := netns("").run(probePath(), "check", fmt.Sprintf("tcp://%s?bytes=%d", netip.AddrPortFrom(to, port), size))
	if err != nil {
		t.Fatal(err)
	}
	m := inMilliseconds.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the probe prints no time: %q", out)
	}
	ms, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// bucketRates returns the token buckets at the roots of a namespace's links, in
// bits per second.
func bucketRates(t *testing.T, ns netns) map[string]int {
	t.Helper()
	text, err := ns.run("tc", "-j", "qdisc")
	if err != nil {
		t.Fatal(err)
	}
	var qdiscs []struct {
		Kind, Dev string
		Options   struct{ Rate int } // bytes per second
	}
	if err := json.Unmarshal([]byte(text), &qdiscs); err != nil {
		t.Fatalf("read %s: %v", text, err)
	}
	rates := map[string]int{}
	for _, q := range qdiscs {
		if q.Kind == "tbf" {
			rates[q.Dev] = q.Options.Rate * 8
		}
	}
	return rates
}
