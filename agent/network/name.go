package network

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/vishvananda/netlink"
)

// rename is one step on the way to the wanted names.
type rename struct {
	index    int
	from, to string
}

// name gives each NIC its name.
func (j *job) name(ctx context.Context) error {
	if len(j.want.nics) == 0 {
		return nil
	}
	list, err := consistent(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	have, links := map[int]string{}, map[int]*netlink.LinkAttrs{}
	for _, link := range list {
		have[link.Attrs().Index], links[link.Attrs().Index] = link.Attrs().Name, link.Attrs()
	}
	if err := j.claimNames(links); err != nil {
		return err
	}
	plan, err := planNames(have, j.wantedNames(), func(index int) bool {
		return j.own.given[index] || links[index].ParentDevBus == "virtio"
	})
	if err != nil {
		return err
	}
	for _, step := range plan {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := j.rename(step, links[step.index]); err != nil {
			return err
		}
	}
	return nil
}

// claimNames has the kernel count the NICs' names as chosen (NET_NAME_RENAMED) that have
// the wanted ones by chance, which it does of each name but the one that a link has already
// (net/core/dev.c, dev_change_name). A container's udev keeps such names (systemd.link(5),
// NamePolicy=keep), and replaces those that the kernel has numbered. Only a NIC that is
// new and down is renamed: none of its addresses and routes is lost.
func (j *job) claimNames(links map[int]*netlink.LinkAttrs) error {
	wanted := j.wantedNames()
	taken := func(name string) bool {
		has := func(link *netlink.LinkAttrs) bool { return link.Name == name }
		return slices.ContainsFunc(slices.Collect(maps.Values(links)), has) || slices.Contains(slices.Collect(maps.Values(wanted)), name)
	}
	for index, name := range wanted {
		link := links[index]
		if link == nil || link.Name != name || j.own.given[index] || link.Flags&net.FlagUp != 0 {
			continue
		}
		for _, next := range []string{temporary(index, taken), name} {
			if err := netlink.LinkSetName(linkOf(index), next); err != nil {
				return fmt.Errorf("claim the name of interface %s: rename it to %s: %w", name, next, err)
			}
		}
	}
	return nil
}

// rename does one step. It takes the link down first: kernels before 6.2 do not
// rename one that is up (net/core/dev.c, dev_change_name).
func (j *job) rename(step rename, link *netlink.LinkAttrs) error {
	if link.Flags&net.FlagUp != 0 {
		if err := j.lower(step.index); err != nil {
			return fmt.Errorf("set interface %s down to rename it: %w", step.from, err)
		}
	}
	if err := netlink.LinkSetName(linkOf(step.index), step.to); err != nil {
		return fmt.Errorf("rename interface %s to %s: %w", step.from, step.to, err)
	}
	if _, ours := j.own.nics[step.index]; ours {
		j.own.nics[step.index] = step.to
	}
	j.changes.addf("interface %s renamed to %s", step.from, step.to)
	return nil
}

// planNames returns the steps from the links' current names to the wanted ones.
// A link in the way first gets a temporary name; only wanted links and those
// for which movable returns true may be renamed.
func planNames(have, want map[int]string, movable func(index int) bool) ([]rename, error) {
	have = maps.Clone(have)
	holder := map[string]int{}
	for index, name := range have {
		holder[name] = index
	}
	taken := func(name string) bool {
		_, held := holder[name]
		return held || slices.Contains(slices.Collect(maps.Values(want)), name)
	}
	var plan []rename
	move := func(index int, to string) {
		plan = append(plan, rename{index: index, from: have[index], to: to})
		delete(holder, have[index])
		have[index], holder[to] = to, index
	}
	for _, index := range slices.Sorted(maps.Keys(want)) {
		name := want[index]
		from, ok := have[index]
		if !ok {
			return nil, fmt.Errorf("interface %s: its device is not in the guest's network namespace: %w", name, errdefs.ErrNotFound)
		}
		if from == name {
			continue
		}
		if other, held := holder[name]; held {
			if _, wanted := want[other]; !wanted && !movable(other) {
				return nil, fmt.Errorf("interface %s: the name belongs to another interface that the host did not give: %w", name, errdefs.ErrAlreadyExists)
			}
			move(other, temporary(other, taken))
		}
		move(index, name)
	}
	return plan, nil
}

// temporary makes an unused name.
func temporary(index int, taken func(string) bool) string {
	for n := index; ; n++ {
		if name := fmt.Sprintf("nic%d", n); !taken(name) {
			return name
		}
	}
}
