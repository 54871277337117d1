package network

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// allMulticast reports whether a link receives all multicast. Netlink shows that only
// if the link's own flag asks for it; sysfs has the flags that apply.
func allMulticast(t *testing.T, ns *namespace, name string) bool {
	t.Helper()
	var flags int
	must(t, ns.do(func() error {
		sys, err := detachedMount("sysfs", unix.MOUNT_ATTR_RDONLY)
		if err != nil {
			return err
		}
		defer unix.Close(sys)
		text, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d/class/net/%s/flags", sys, name))
		if err != nil {
			return err
		}
		_, err = fmt.Sscanf(string(text), "0x%x", &flags)
		return err
	}))
	return flags&unix.IFF_ALLMULTI != 0
}

// joining are the models that connect links to the VM.
var joining = map[string]Options{"tcfilter": {}, "macvtap": {Model: Macvtap}}

// A link receives the multicast of groups that only the guest has joined, and no
// longer when the guest is gone.
func TestMulticastIsReceived(t *testing.T) {
	t.Parallel()
	for name, opts := range joining {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			n, vm := p.open(t, opts), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			if !allMulticast(t, p.ns, "eth0") {
				t.Error("the link does not receive all multicast")
			}
			// Filters that are made again make no second membership.
			must(t, p.ns.removeIngress(linkOf(t, p.ns, "eth0").Attrs().Index))
			must(t, n.Plug(t.Context(), vm))
			must(t, n.Unplug(t.Context(), vm))
			if allMulticast(t, p.ns, "eth0") {
				t.Error("without a NIC the link still receives all multicast")
			}
			must(t, n.Replug(t.Context(), vm))
			if !allMulticast(t, p.ns, "eth0") {
				t.Error("the link does not receive all multicast again")
			}
			must(t, n.Close(t.Context()))
			if allMulticast(t, p.ns, "eth0") {
				t.Error("the link still receives all multicast")
			}
		})
	}
}

// CNI's host-device plugin takes a link out of the namespace before the pod's shim
// ends, and returns it to the host.
func TestMulticastOfALinkThatLeaves(t *testing.T) {
	t.Parallel()
	for name, opts := range joining {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPod(t)
			elsewhere, _ := newNamespace(t)
			n, vm := p.open(t, opts), newMachine(t)
			must(t, n.Plug(t.Context(), vm))
			link := linkOf(t, p.ns, "eth0")
			must(t, p.ns.LinkSetNsFd(link, int(elsewhere.file.Fd())))
			if allMulticast(t, elsewhere, "eth0") {
				t.Error("the link that has left receives all multicast")
			}
			must(t, elsewhere.LinkSetNsFd(linkOf(t, elsewhere, "eth0"), int(p.ns.file.Fd())))
			p.address(t, "eth0", "10.1.0.2/24")
			must(t, n.Plug(t.Context(), vm))
			if !allMulticast(t, p.ns, "eth0") {
				t.Error("the link that has returned does not receive all multicast")
			}
			must(t, n.Close(t.Context()))
			if allMulticast(t, p.ns, "eth0") {
				t.Error("the link still receives all multicast")
			}
		})
	}
}

// Clean clears the flag of a pod that an earlier version started.
func TestCleanOfTheMulticastFlag(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	link := linkOf(t, p.ns, "eth0")
	must(t, p.ns.LinkSetAllmulticastOn(link))
	id, err := json.Marshal(p.ns.id)
	must(t, err)
	must(t, Clean(p.path, fmt.Appendf(nil, `{"version":1,"namespace":%s,"links":[{"link":%d,"multicast":true}]}`, id, link.Attrs().Index)))
	if allMulticast(t, p.ns, "eth0") {
		t.Error("the link still receives all multicast")
	}
}

// A flag that the engine has set is left alone.
func TestMulticastFlagOfAnother(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	must(t, p.ns.LinkSetAllmulticastOn(linkOf(t, p.ns, "eth0")))
	n := p.open(t, Options{})
	must(t, n.Plug(t.Context(), newMachine(t)))
	must(t, n.Close(t.Context()))
	if linkOf(t, p.ns, "eth0").Attrs().RawFlags&unix.IFF_ALLMULTI == 0 {
		t.Error("the link's own flag is cleared")
	}
}
