package network

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// arp returns a request for an address.
func arp(src []byte, target string) []byte {
	f := append(bytes.Repeat([]byte{0xff}, 6), src...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_ARP)
	f = append(f, 0, 1, 8, 0, 6, 4, 0, 1)
	f = append(append(f, src...), 10, 1, 0, 1, 0, 0, 0, 0, 0, 0)
	return append(append(f, netip.MustParseAddr(target).AsSlice()...), make([]byte, 18)...)
}

// icmp6Message returns a message about an address, to the group of its
// solicitations.
func icmp6Message(src []byte, kind byte, target string) []byte {
	f := append([]byte{0x33, 0x33, 0xff, 0, 0, 2}, src...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_IPV6)
	f = append(f, 0x60, 0, 0, 0, 0, 24, 58, 255)
	f = append(f, make([]byte, 32)...)
	f = append(f, kind, 0, 0, 0, 0, 0, 0, 0)
	return append(f, netip.MustParseAddr(target).AsSlice()...)
}

// A doorbell rings for what is meant for the pod, and for nothing else.
func TestDoorbell(t *testing.T) {
	t.Parallel()
	for model, opts := range map[string]Options{"tcfilter": {}, "macvtap": {Model: Macvtap}} {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			n := p.open(t, opts)
			must(t, n.Plug(t.Context(), newMachine(t)))
			w := wire(t, p.host, "eth0")
			mac := linkOf(t, p.host, "eth0").Attrs().HardwareAddr
			to := func(dst []byte) []byte {
				return append(bytes.Clone(dst), frame(mac, "x")[6:]...)
			}
			guest := n.State().Interfaces[0].Mac
			other := append(bytes.Clone(guest[:5]), guest[5]^1)
			for _, tc := range []struct {
				name  string
				frame []byte
				rings bool
			}{
				{"to the guest", to(guest), true},
				{"to another", to(other), false},
				{"broadcast", to(bytes.Repeat([]byte{0xff}, 6)), false},
				{"ARP for the guest", arp(mac, "10.1.0.2"), true},
				{"ARP for another", arp(mac, "10.1.0.3"), false},
				{"solicitation of the guest", icmp6Message(mac, 135, "fd01::2"), true},
				{"solicitation of another", icmp6Message(mac, 135, "fd01::3"), false},
				{"another ICMP message", icmp6Message(mac, 134, "fd01::2"), false},
				{"short", to(other)[:14], false},
			} {
				bell, err := n.Doorbell(t.Context())
				must(t, err)
				wait := 20 * time.Second
				if !tc.rings {
					wait = 50 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), wait)
				if _, err := w.Write(tc.frame); err != nil {
					t.Fatal(err)
				}
				if err := bell.Wait(ctx); (err == nil) != tc.rings {
					t.Errorf("%s: %v, want it to ring: %t", tc.name, err, tc.rings)
				}
				cancel()
				must(t, bell.Close())
				must(t, bell.Close())
			}
		})
	}
}

// A doorbell rings for a packet on a link that was down meanwhile, or down at first.
func TestDoorbellOfLinkThatGoesDown(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"meanwhile": false, "at first": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			n := p.open(t, Options{})
			must(t, n.Plug(t.Context(), newMachine(t)))
			mac := linkOf(t, p.host, "eth0").Attrs().HardwareAddr
			down := func() { must(t, p.ns.LinkSetDown(linkOf(t, p.ns, "eth0"))) }
			if before {
				down()
			}
			bell, err := n.Doorbell(t.Context())
			must(t, err)
			defer bell.Close()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			rung := make(chan error, 1)
			go func() { rung <- bell.Wait(ctx) }()
			if !before {
				down()
			}
			select {
			case err := <-rung:
				t.Fatalf("it ended while the link was down: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			must(t, p.ns.LinkSetUp(linkOf(t, p.ns, "eth0")))
			if _, err := wire(t, p.host, "eth0").Write(append(bytes.Clone(n.State().Interfaces[0].Mac), frame(mac, "x")[6:]...)); err != nil {
				t.Fatal(err)
			}
			if err := <-rung; err != nil {
				t.Errorf("it does not ring: %v", err)
			}
		})
	}
}

func TestDoorbellOfNothing(t *testing.T) {
	t.Parallel()
	n := newPod(t).open(t, Options{})
	bell, err := n.Doorbell(t.Context()) // nothing is plugged
	must(t, err)
	if err := bell.Wait(t.Context()); !errors.Is(err, errNoLinks) {
		t.Errorf("wait: %v", err)
	}
	must(t, n.Close(t.Context()))
	if _, err := n.Doorbell(t.Context()); err == nil {
		t.Error("a doorbell of a closed network")
	}
	var none Doorbell
	if err := none.Wait(t.Context()); err == nil || none.Close() != nil {
		t.Errorf("without links: %v", err)
	}
}

// A link may have as many addresses as a guest may.
func TestDoorbellOfManyAddresses(t *testing.T) {
	p := newPod(t)
	i := &api.Interface{Mac: []byte{2, 0, 0, 0, 0, 1}}
	for n := range api.MaxAddresses {
		i.Addresses = append(i.Addresses, &api.Address{Prefix: fmt.Sprintf("fd00::%x/64", n+1)})
	}
	index := linkOf(t, p.host, "eth0").Attrs().Index
	bell := new(Doorbell)
	defer bell.Close()
	// An index is one of its namespace: here there may be none of that number.
	if err := p.host.do(func() error { return bell.listen(index, i) }); err != nil {
		t.Error(err)
	}
	// Each of its addresses still rings, and so do others' questions, but no other frame.
	vm, err := bpf.NewVM(filterFor(i))
	if err != nil {
		t.Fatal(err)
	}
	src := []byte{2, 0, 0, 0, 0, 2}
	for name, c := range map[string]struct {
		frame []byte
		rings bool
	}{
		"solicitation":  {icmp6Message(src, solicitation, "fd00::400"), true},
		"advertisement": {icmp6Message(src, solicitation+1, "fd00::400"), false},
		"ARP":           {arp(src, "10.1.0.9"), true},
		"to its MAC":    {append(append(bytes.Clone(i.Mac), src...), make([]byte, 80)...), true},
		"broadcast":     {append(bytes.Repeat([]byte{0xff}, 6), append(src, make([]byte, 80)...)...), false},
	} {
		if n, err := vm.Run(c.frame); err != nil || (n > 0) != c.rings {
			t.Errorf("%s: %d, %v, want it to ring: %v", name, n, err, c.rings)
		}
	}
}
