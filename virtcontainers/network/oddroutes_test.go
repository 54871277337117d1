package network

import (
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/katabox/katabox/agent/api"
)

// rawRoute adds a route that the netlink library cannot express. It returns false
// if the kernel has no such routes.
func (p *pod) rawRoute(t *testing.T, msg unix.RtMsg, attrs ...*nl.RtAttr) bool {
	t.Helper()
	msg.Table, msg.Protocol, msg.Type = unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RTN_UNICAST
	err := p.ns.do(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_ACK)
		req.AddData(&nl.RtMsg{RtMsg: msg})
		for _, a := range attrs {
			req.AddData(a)
		}
		_, err := req.Execute(unix.NETLINK_ROUTE, 0)
		return err
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return false
	}
	must(t, err)
	return true
}

func attr(kind int, data []byte) *nl.RtAttr { return nl.NewRtAttr(kind, data) }

// A route of which the guest would get only a part is left out: it would take
// packets that are not its own.
func TestStateOfOddRoutes(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n, vm := p.open(t, Options{}), newMachine(t)
	eth0 := binary.NativeEndian.AppendUint32(nil, uint32(linkOf(t, p.ns, "eth0").Attrs().Index))
	from, gateway := network("fd01::/64").IP, network("fd01::1/64").IP
	encap := attr(unix.RTA_ENCAP, nil)
	const id, dst = 1, 2 // include/uapi/linux/lwtunnel.h, LWTUNNEL_IP_ID and LWTUNNEL_IP_DST
	encap.AddRtAttr(id, binary.BigEndian.AppendUint64(nil, 7))
	encap.AddRtAttr(dst, []byte{10, 1, 0, 9})
	odd := 0
	for _, made := range []bool{
		p.rawRoute(t, unix.RtMsg{Family: unix.AF_INET6, Src_len: 64}, attr(unix.RTA_SRC, from), attr(unix.RTA_GATEWAY, gateway), attr(unix.RTA_OIF, eth0)),
		p.rawRoute(t, unix.RtMsg{Family: unix.AF_INET6, Src_len: 64, Dst_len: 32},
			attr(unix.RTA_SRC, from), attr(unix.RTA_DST, network("fd20::/32").IP), attr(unix.RTA_GATEWAY, gateway), attr(unix.RTA_OIF, eth0)),
		p.rawRoute(t, unix.RtMsg{Family: unix.AF_INET, Dst_len: 16, Scope: unix.RT_SCOPE_LINK}, attr(unix.RTA_DST, []byte{10, 9, 0, 0}),
			attr(unix.RTA_ENCAP_TYPE, binary.NativeEndian.AppendUint16(nil, nl.LWTUNNEL_ENCAP_IP)), encap, attr(unix.RTA_OIF, eth0)),
	} {
		if made {
			odd++
		}
	}
	if odd == 0 {
		t.Skip("this kernel has no such routes")
	}
	// The same without "from": it is the guest's.
	p.route(t, netlink.Route{LinkIndex: linkOf(t, p.ns, "eth0").Attrs().Index}, "::/0", "fd01::1")
	must(t, n.Plug(t.Context(), vm))
	want := []*api.Route{{Interface: "eth0", Destination: "::/0", Gateway: "fd01::1", Metric: 1024}}
	got := n.State().GetRoutes()
	for i, r := range got { // the guest ignores a route that is named twice
		if i > 0 && cmp.Equal(r, got[i-1], protocmp.Transform()) {
			got = got[:i]
		}
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	notes := 0
	for note := range n.told {
		if strings.Contains(note, "with encapsulation, TOS or a network that packets are from") {
			notes++
		}
	}
	if notes != odd-1 {
		t.Errorf("the log has %v", n.told)
	}
}
