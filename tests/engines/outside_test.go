package engines

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/dns/dnsmessage"
)

const (
	// outsideServer is the address of a name server outside the engines' networks. It
	// is not a loopback address: Docker asks such a server from the container's
	// network namespace.
	outsideServer = "203.0.113.53"
	outsideName   = "outside.katabox.test"
)

// askOutside gets http://outside.katabox.test, which is the container with the address
// 10.99.7.20, in a container whose name server knows it.
func (s *stage) askOutside(ctx context.Context, network string) string {
	defer serveName(s.t, netip.MustParseAddr("10.99.7.20"))()
	return s.script(ctx, "/ask -for 60s http://"+outsideName, "--network", network, "--dns", outsideServer, "-v", bed.ask+":/ask:ro").String()
}

// serveName answers questions for outsideName until stop is called.
func serveName(t *testing.T, is netip.Addr) (stop func()) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(outsideServer), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrReplace(lo, address); err != nil {
		t.Fatal(err)
	}
	conn, err := net.ListenPacket("udp", net.JoinHostPort(outsideServer, "53"))
	if err != nil {
		t.Fatal(errors.Join(err, netlink.AddrDel(lo, address)))
	}
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if reply, err := answer(buf[:n], is); err == nil {
				_, _ = conn.WriteTo(reply, from)
			}
		}
	}()
	return func() {
		if err := errors.Join(conn.Close(), netlink.AddrDel(lo, address)); err != nil {
			t.Error(err)
		}
	}
}

// answer answers a question.
func answer(question []byte, is netip.Addr) ([]byte, error) {
	var q dnsmessage.Message
	if err := q.Unpack(question); err != nil {
		return nil, err
	}
	a := dnsmessage.Message{Header: dnsmessage.Header{ID: q.ID, Response: true, RecursionAvailable: true}, Questions: q.Questions}
	for _, asked := range q.Questions {
		switch {
		case asked.Name.String() != outsideName+".":
			a.RCode = dnsmessage.RCodeNameError
		case asked.Type == dnsmessage.TypeA:
			a.Answers = append(a.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: asked.Name, Class: asked.Class, TTL: 1},
				Body:   &dnsmessage.AResource{A: is.As4()},
			})
		}
	}
	return a.Pack()
}
