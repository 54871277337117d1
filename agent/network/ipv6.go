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

const (
	// confIPv6 has a directory of settings for each link with IPv6
	// (Documentation/networking/ip-sysctl.rst, conf/interface).
	confIPv6 = "/proc/sys/net/ipv6/conf"
	// loIndex is the kernel's index of lo in each network namespace
	// (include/net/flow.h, LOOPBACK_IFINDEX).
	loIndex = 1
)

// switchIPv6 switches IPv6 off on the links that have none on the host, and on
// again on those that got it there. What containers have switched off by a sysctl
// stays off.
func (j *job) switchIPv6(context.Context) error {
	if err := j.switchLink(loIndex, "lo", j.want.loWithoutIPv6); err != nil {
		return err
	}
	for _, nic := range j.want.nics {
		if err := j.switchLink(nic.index, nic.name, nic.withoutIPv6); err != nil {
			return err
		}
	}
	return nil
}

func (j *job) switchLink(index int, name string, off bool) error {
	if j.own.ipv6Off[index] == off {
		return nil
	}
	value, state := "0", "on"
	if off {
		value, state = "1", "off"
	}
	if err := writeExisting(disableIPv6(name), value); err != nil {
		return fmt.Errorf("interface %s: switch IPv6 %s: %w", name, state, err)
	}
	if j.own.ipv6Off[index] = off; !off {
		delete(j.own.ipv6Off, index)
	}
	j.own.disturbed[index] = true
	j.changes.addf("interface %s: IPv6 switched %s", name, state)
	return nil
}

// leaveOutIPv6 removes from the request what a NIC cannot have because a
// container's sysctl has disabled IPv6 on it: with runc such a container starts,
// and has the rest of its network. So does a pod whose guest has a kernel
// without IPv6, if the host asks for nothing of it but link-local addresses.
func (j *job) leaveOutIPv6(context.Context) error {
	if _, err := os.Stat(confIPv6); errors.Is(err, fs.ErrNotExist) {
		for i := range j.want.nics {
			j.want.dropAddresses(i, address.linkLocal)
		}
		j.leaveOut6()
		return nil
	}
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
		j.want.dropAddresses(i, func(a address) bool { return a.prefix.Addr().Is6() })
		if !nic.withoutIPv6 && !j.own.withoutIPv6[nic.index] {
			j.changes.addf("interface %s: IPv6 is disabled, its IPv6 addresses and routes are left out", nic.name)
		}
	}
	j.own.withoutIPv6 = without
	j.want.routes = slices.DeleteFunc(slices.Clone(j.want.routes), func(r route) bool { return r.destination.Addr().Is6() && without[r.index] })
	j.want.neighbours = slices.DeleteFunc(slices.Clone(j.want.neighbours), func(n neighbour) bool { return n.address.Is6() && without[n.index] })
	return nil
}

// ipv6Disabled reports whether an interface has IPv6 switched off. Without the
// file it has none at all: that is the host's to know.
func ipv6Disabled(name string) (bool, error) {
	text, err := os.ReadFile(disableIPv6(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return string(bytes.TrimSpace(text)) == "1", err
}

// writeExisting writes to a file of the kernel's. A link without IPv6 has none:
// the guest's kernel is without, or the link's MTU is too small.
func writeExisting(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func disableIPv6(name string) string { return filepath.Join(confIPv6, name, "disable_ipv6") }
