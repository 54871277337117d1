package management

import (
	"context"
	"time"

	"github.com/katabox/katabox/virtcontainers/guest"
)

// The paths for the guest's rules for packets, with Kata Containers' names
// (src/runtime/pkg/containerd-shim-v2/shim_management.go): GET returns what
// iptables-save or ip6tables-save prints in the guest, and PUT has in its body what
// iptables-restore or ip6tables-restore reads.
const (
	IPTablesPath  = "/iptables"
	IP6TablesPath = "/ip6tables"
	// IPTablesTimeout bounds the run of the guest's tool.
	IPTablesTimeout = 30 * time.Second
)

func addIPTables(all map[string]handler, sandbox Sandbox) {
	for path, ipv6 := range map[string]bool{IPTablesPath: false, IP6TablesPath: true} {
		set := handler{method: "PUT", timeout: IPTablesTimeout, maxBody: guest.MaxIPTables, answer: func(ctx context.Context, r *request) response {
			if err := sandbox.SetIPTables(ctx, ipv6, r.body); err != nil {
				return failed(err)
			}
			return response{status: 200, contentType: plainText}
		}}
		all[path] = handler{timeout: IPTablesTimeout, also: &set, answer: func(ctx context.Context, _ *request) response {
			rules, err := sandbox.IPTables(ctx, ipv6)
			if err != nil {
				return failed(err)
			}
			return response{200, plainText, rules}
		}}
	}
}
