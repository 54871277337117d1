package network

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// addNeighbours adds the permanent neighbours that are missing.
func (j *job) addNeighbours(ctx context.Context) error {
	if len(j.want.neighbours) == 0 {
		return nil
	}
	have, err := permanentNeighbours()
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	for _, n := range j.want.neighbours {
		if err := ctx.Err(); err != nil {
			return err
		}
		if have[n.unplaced()] {
			continue
		}
		what := n.text(j.want.nics[n.nic].name)
		if err := netlink.NeighSet(n.netlink()); err != nil {
			return fmt.Errorf("add %s: %w", what, err)
		}
		j.own.neighbours[n.unplaced()] = struct{}{}
		j.changes.addf("%s added", what)
	}
	return nil
}

func (n neighbour) netlink() *netlink.Neigh {
	return &netlink.Neigh{
		LinkIndex: n.index, State: netlink.NUD_PERMANENT,
		IP: n.address.AsSlice(), HardwareAddr: hardwareAddr(n.mac),
	}
}

// unplaced returns the neighbour without its interface's index in the request.
func (n neighbour) unplaced() neighbour {
	n.nic = 0
	return n
}

func permanentNeighbours() (map[neighbour]bool, error) {
	list, err := consistent(func() ([]netlink.Neigh, error) { return netlink.NeighList(0, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, err
	}
	set := map[neighbour]bool{}
	for _, found := range list {
		addr, ok := netip.AddrFromSlice(found.IP)
		if ok && found.State == netlink.NUD_PERMANENT && len(found.HardwareAddr) == macLen {
			set[neighbour{index: found.LinkIndex, address: addr, mac: [macLen]byte(found.HardwareAddr)}] = true
		}
	}
	return set, nil
}
