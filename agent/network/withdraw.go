package network

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
)

// withdraw removes what earlier calls made and this one does not name. What is
// already gone, perhaps with its NIC, is only removed from the record.
func (j *job) withdraw(ctx context.Context) error {
	for _, step := range []func() error{j.dropNeighbours, j.dropRules, j.dropRoutes, j.dropAddresses, j.dropNICs} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) dropNeighbours() error {
	wanted := map[neighbour]bool{}
	for _, n := range j.want.neighbours {
		wanted[n.unplaced()] = true
	}
	text := func(n neighbour) string { return n.text(j.own.nics[n.index]) }
	return drop(&j.changes, j.own.neighbours, wanted, text, func(n neighbour) error {
		return netlink.NeighDel(n.netlink())
	})
}

func (j *job) dropRoutes() error {
	wanted := map[route]bool{}
	for _, r := range j.want.routes {
		wanted[r.unplaced()] = true
	}
	text := func(r route) string { return r.text(j.own.nics[r.index]) }
	return drop(&j.changes, j.own.routes, wanted, text, func(r route) error {
		return netlink.RouteDel(r.netlink())
	})
}

func (j *job) dropAddresses() error {
	wanted := map[ownAddress]bool{}
	for _, nic := range j.want.nics {
		for _, a := range nic.addresses {
			wanted[ownAddress{nic.index, a}] = true
		}
	}
	text := func(a ownAddress) string { return fmt.Sprintf("address %s dev %s", a.address, j.own.nics[a.index]) }
	return drop(&j.changes, j.own.addresses, wanted, text, func(a ownAddress) error {
		return j.removeAddress(a.index, a.address)
	})
}

// drop removes those of own that are not wanted, sorted by their text.
func drop[T comparable](changes *changes, own map[T]struct{}, wanted map[T]bool, text func(T) string, remove func(T) error) error {
	list := slices.SortedFunc(maps.Keys(own), func(a, b T) int { return cmp.Compare(text(a), text(b)) })
	for _, thing := range list {
		if wanted[thing] {
			continue
		}
		err := remove(thing)
		if err != nil && !isGone(err) {
			return fmt.Errorf("remove %s: %w", text(thing), err)
		}
		delete(own, thing)
		if err == nil {
			changes.addf("%s removed", text(thing))
		}
	}
	return nil
}

// dropNICs removes the addresses of NICs that are no longer named and takes
// them down.
func (j *job) dropNICs() error {
	wanted := j.wantedNames()
	for _, index := range slices.Sorted(maps.Keys(j.own.nics)) {
		if _, ok := wanted[index]; ok {
			continue
		}
		name := j.own.nics[index]
		if err := j.dropNIC(index, name); err != nil && !isGone(err) {
			return fmt.Errorf("release interface %s: %w", name, err)
		}
		delete(j.own.nics, index)
		delete(j.own.links, index)
		delete(j.own.settings, index)
	}
	return nil
}

func (j *job) dropNIC(index int, name string) error {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return err
	}
	if err := j.resetSettings(nic{index: index, name: link.Attrs().Name}); err != nil {
		return err
	}
	list, err := addressesOf(index)
	if err != nil {
		return err
	}
	for _, a := range list {
		if a.linkLocal() {
			continue // The kernel removes it when the link goes down.
		}
		if err := j.removeAddress(index, a); err != nil && !isGone(err) {
			return fmt.Errorf("remove address %s: %w", a, err)
		}
		j.changes.addf("address %s dev %s removed", a, name)
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		return nil
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("set down: %w", err)
	}
	j.changes.addf("interface %s set down", name)
	return nil
}
