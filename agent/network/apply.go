package network

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"

	"github.com/containerd/log"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/ctxmutex"
	"github.com/katabox/katabox/internal/fibrule"
)

// resolvConf is the guest's own; containers bring theirs.
const resolvConf = "/etc/resolv.conf"

// Request the kernel's messages ("Nexthop has invalid gateway"): an errno says
// too little (Documentation/userspace-api/netlink/ intro.rst, "Ext ACK").
func init() { nl.EnableErrorMessageReporting = true }

// Network configures the guest's network as the host wants it. Its methods may
// be called from several goroutines.
type Network struct {
	loadDriver func() error
	// pci is the directory of the root PCI bus, resolvConf the file's path.
	pci, resolvConf string

	calls ctxmutex.Mutex // guards own and loadDriver
	own   memory
}

// memory records what earlier calls made, including one that failed half-way.
type memory struct {
	nics map[int]string // names by the kernel's index
	// links has what NICs were given last, by the kernel's index.
	links map[int]nic
	// devices has the NICs' directories in sysfs by their PCI paths, as they were when the
	// NIC was last found.
	devices map[string]os.FileInfo
	// taken has the PCI paths of the NICs of the last call, and whether a container has
	// taken the NIC: moved it to another network namespace, or given it another driver.
	taken map[string]bool
	// given has the indexes of all NICs that were ever named: the name of one
	// that is no longer wanted may be reused.
	given map[int]bool
	// lowered has the indexes of the NICs that were set down to change them, until they are
	// up again.
	lowered map[int]bool
	// disturbed has the indexes of the NICs of which this call, or one that failed, did what
	// may have cost routes: took it down, or removed an address.
	disturbed  map[int]bool
	addresses  map[ownAddress]struct{}
	routes     map[route]struct{}
	rules      map[fibrule.Rule]struct{}
	neighbours map[neighbour]struct{}
	resolver   bool
	// absent has the kernel's first rules that the host wanted to go.
	absent map[fibrule.Rule]struct{}
	// ipv6Off has the indexes of the links whose IPv6 the host had switched off.
	ipv6Off map[int]bool
	// settings has what was set of NICs, by their indexes.
	settings map[int]map[string]int32
	// withoutIPv6 has the indexes of the NICs whose IPv6 was found disabled.
	withoutIPv6 map[int]bool
}

type ownAddress struct {
	index int
	address
}

// New makes a Network of the calling thread's network namespace. loadDriver
// is called before NICs are looked for, until it has succeeded once; it may be
// nil.
func New(loadDriver func() error) *Network {
	return &Network{
		loadDriver: loadDriver, pci: pciRoot, resolvConf: resolvConf,
		calls: ctxmutex.New(),
		own: memory{
			nics: map[int]string{}, links: map[int]nic{}, devices: map[string]os.FileInfo{}, taken: map[string]bool{}, given: map[int]bool{},
			lowered: map[int]bool{}, disturbed: map[int]bool{}, addresses: map[ownAddress]struct{}{},
			routes: map[route]struct{}{}, neighbours: map[neighbour]struct{}{}, ipv6Off: map[int]bool{}, withoutIPv6: map[int]bool{},
			rules: map[fibrule.Rule]struct{}{}, absent: map[fibrule.Rule]struct{}{}, settings: map[int]map[string]int32{},
		},
	}
}

// Apply makes the guest's network as want describes and returns what it
// changed, which may be nothing. It waits for earlier calls, and at most 10 s
// for NICs that do not exist yet.
//
// An invalid request fails with errdefs.ErrInvalidArgument and changes nothing;
// so does one with a NIC that does not appear, with errdefs.ErrNotFound. A NIC of the
// call before that a container has taken since is left out. After
// another error a part is done, as the changes show, and the call may be
// repeated.
func (n *Network) Apply(ctx context.Context, want *api.SetNetworkRequest) (changes []string, err error) {
	s, err := check(want)
	if err != nil {
		return nil, err
	}
	if err := n.calls.Lock(ctx); err != nil {
		return nil, fmt.Errorf("set network: wait for the call before: %w", err)
	}
	defer n.calls.Unlock()
	j := &job{Network: n, want: s, keptDown: map[int]bool{}}
	if err := j.run(ctx); err != nil {
		return j.changes.words(), fmt.Errorf("set network: %w", err)
	}
	return j.changes.words(), nil
}

// job is one Apply.
type job struct {
	*Network
	want    *state
	changes changes
	// keptDown has the indexes of the NICs that a container has set down: they have no routes.
	keptDown map[int]bool
}

func (j *job) run(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		j.locate, j.withdraw, j.name, j.switchIPv6, j.leaveOutIPv6, j.setSettings, j.links, j.addAddresses, j.addRoutes, j.addRules,
		j.addNeighbours, j.resolver,
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	clear(j.own.disturbed)
	return nil
}

// locate finds the NICs, and leaves out those that a container has taken.
func (j *job) locate(ctx context.Context) error {
	if len(j.want.nics) == 0 {
		clear(j.own.devices)
		clear(j.own.taken)
		return nil
	}
	if j.loadDriver != nil {
		if err := j.loadDriver(); err != nil {
			return err
		}
		j.loadDriver = nil // Once is enough.
	}
	indexes, err := j.find(ctx, j.want.nics)
	if err != nil {
		return err
	}
	j.want.locate(indexes)
	j.noteTaken(ctx)
	j.want.leaveOutMissing()
	return nil
}

// noteTaken remembers which NICs a container has taken, and forgets the devices of those
// that are no longer wanted.
func (j *job) noteTaken(ctx context.Context) {
	before := maps.Clone(j.own.taken)
	clear(j.own.taken)
	for _, nic := range j.want.nics {
		j.own.taken[nic.path] = nic.index == 0
		if nic.index == 0 && !before[nic.path] {
			j.changes.addf("interface %s is left out: its device is not in the guest's network namespace any more", nic.name)
			log.G(ctx).Warnf("interface %s is left out: a container has moved it to another network namespace, or given it another driver", nic.name)
		}
	}
	maps.DeleteFunc(j.own.devices, func(path string, _ os.FileInfo) bool {
		_, wanted := j.own.taken[path]
		return !wanted
	})
}

// wantedNames returns the request's names by the kernel's index.
func (j *job) wantedNames() map[int]string {
	names := map[int]string{}
	for _, nic := range j.want.nics {
		names[nic.index] = nic.name
	}
	return names
}

// linkOf returns a link for calls that use only its index.
func linkOf(index int) netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

func hardwareAddr(mac [macLen]byte) net.HardwareAddr { return net.HardwareAddr(mac[:]) }
