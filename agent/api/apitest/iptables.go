package apitest

import (
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
)

// iptables checks that rules come back as they were set, those of IPv4 and IPv6
// apart, and that rules which were refused change nothing.
func iptables(h *host) {
	rules := map[bool]string{
		false: "*filter\n-A INPUT -m comment --comment four -j ACCEPT\nCOMMIT\n",
		true:  "*filter\n-A INPUT -m comment --comment six -j ACCEPT\nCOMMIT\n",
	}
	for v6, text := range rules {
		_, err := h.guest.SetIPTables(h.Context(), &api.SetIPTablesRequest{Ipv6: v6, Rules: []byte(text)})
		h.must("SetIPTables", err)
	}
	long := strings.Repeat("#", api.MaxIPTables) + "\nCOMMIT\n"
	_, err := h.guest.SetIPTables(h.Context(), &api.SetIPTablesRequest{Rules: []byte(long)})
	h.want("rules that are too long", err, errdefs.IsInvalidArgument)
	_, err = h.guest.SetIPTables(h.Context(), &api.SetIPTablesRequest{Rules: []byte("*filter\n")})
	if err == nil || !strings.Contains(errgrpc.ToNative(err).Error(), "COMMIT expected") {
		h.Errorf("rules that end too early: %v", err)
	}
	for v6, want := range rules {
		r, err := h.guest.GetIPTables(h.Context(), &api.GetIPTablesRequest{Ipv6: v6})
		if err != nil || string(r.GetRules()) != want {
			h.Errorf("GetIPTables, IPv6 %t: %q, %v, want %q", v6, r.GetRules(), err, want)
		}
	}
}
