package network

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// leaveOutIPv6 removes from the request what a NIC cannot have because a
// container's sysctl has disabled IPv6 on it: with runc such a container starts,
// and has the rest of its network.
func (j *job) leaveOutIPv6(context.Context) error {
	without := map[int]bool{}
	for i, nic := range j.want.nics {
		disabled, err := ipv6Disabled(nic.name)
		if err != nil {
			return fmt.Errorf("interface %s: %w", nic.name, err)
		}
		if !disabled {
			continue
		}
		without[nic.index] = true
		j.want.nics[i].addresses = slices.DeleteFunc(slices.Clone(nic.addresses), func(a address) bool { return a.prefix.Addr().Is6() })
		if !j.own.withoutIPv6[nic.index] {
			j.changes.addf("interface %s: IPv6 is disabled, its IPv6 addresses and routes are left out", nic.name)
		}
	}
	j.own.withoutIPv6 = without
	j.want.routes = slices.DeleteFunc(slices.Clone(j.want.routes), func(r route) bool { return r.destination.Addr().Is6() && without[r.index] })
	j.want.neighbours = slices.DeleteFunc(slices.Clone(j.want.neighbours), func(n neighbour) bool { return n.address.Is6() && without[n.index] })
	return nil
}

// ipv6Disabled reports whether an interface has IPv6 switched off
// (Documentation/networking/ip-sysctl.rst, disable_ipv6). Without the file the
// kernel has no IPv6 at all: that is the host's to know.
func ipv6Disabled(name string) (bool, error) {
	text, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "disable_ipv6"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return string(bytes.TrimSpace(text)) == "1", err
}
