package network

import "testing"

// What CNI's plugin tuning sets for a pod's link holds in the guest, and what changes
// later.
func TestTunedLink(t *testing.T) {
	ctx, d := begin(t)
	ns := newNetns(t, d)
	network := newCNI(t, d, object{"type": "bridge", "isGateway": true}, object{"type": "tuning", "sysctl": object{
		"net.ipv4.conf.IFNAME.arp_ignore": "1", "net.ipv4.conf.IFNAME.forwarding": "1", "net.ipv4.conf.IFNAME.rp_filter": "2", "net.ipv6.conf.IFNAME.accept_ra": "0",
	}})
	network.useBridge(t)
	ns.do(t, "echo 1 >/proc/sys/net/ipv4/conf/default/forwarding") // as where the host forwards
	network.join(t, ns, "eth0")
	const settings = "cd /proc/sys/net; cat ipv4/conf/eth0/arp_ignore ipv4/conf/eth0/rp_filter ipv6/conf/eth0/accept_ra ipv4/conf/eth0/forwarding"
	read := func() (string, error) { return ns.run("sh", "-c", settings) }
	if got := must(t, read); got != "1\n2\n0\n1\n" {
		t.Fatalf("the plugin has set %q", got)
	}
	p := newPod(ctx, t, d, ns)
	inside := func() (string, error) { return runIn(ctx, p.box, "sh", "-c", settings) }
	if got := must(t, inside); got != "1\n2\n0\n1\n" {
		t.Errorf("the guest has %q", got)
	}
	ns.do(t, "echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter")
	eventually(ctx, t, "settings after a change", "1\n1\n0\n1\n", inside)
}
