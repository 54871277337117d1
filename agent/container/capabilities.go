package container

import (
	"slices"
	"strings"
	"sync"

	"github.com/containerd/log"
	"github.com/moby/sys/capability"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/spawn"
)

// kernelCapabilities are the numbers of those that the kernel has, by the names
// that a spec has for them.
var kernelCapabilities = sync.OnceValues(func() (map[string]capability.Cap, error) {
	list, err := capability.ListSupported()
	numbers := map[string]capability.Cap{}
	for _, c := range list {
		numbers["CAP_"+strings.ToUpper(c.String())] = c
	}
	return numbers, err
})

// capabilities are those of an exec: the spec's, or else the container's. One
// that the kernel does not know is left out with a warning.
func (c *Container) capabilities(of *specs.LinuxCapabilities) (*spawn.Capabilities, error) {
	if of == nil {
		if c.execs.capabilities == nil {
			return nil, nil //nolint:nilnil // as the user has them
		}
		d := c.execs.capabilities
		of = &specs.LinuxCapabilities{Bounding: d.Bounding, Effective: d.Effective, Inheritable: d.Inheritable, Permitted: d.Permitted, Ambient: d.Ambient}
	}
	numbers, err := kernelCapabilities()
	if err != nil {
		return nil, err
	}
	last, err := capability.LastCap()
	if err != nil {
		return nil, err
	}
	var unknown []string
	set := func(names []string) (bits uint64) {
		for _, name := range names {
			number, ok := numbers[name]
			if !ok {
				unknown = append(unknown, name)
				continue
			}
			bits |= 1 << number
		}
		return bits
	}
	sets := &spawn.Capabilities{
		Bounding: set(of.Bounding), Effective: set(of.Effective), Permitted: set(of.Permitted),
		Inheritable: set(of.Inheritable), Ambient: set(of.Ambient), Last: int(last),
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		log.L.WithField("container", c.id).Warnf("ignoring unknown or unavailable capabilities: %s", strings.Join(slices.Compact(unknown), ", "))
	}
	return sets, nil
}
