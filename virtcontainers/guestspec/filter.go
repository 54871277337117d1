package guestspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Paths says where in the guest the host's files are.
type Paths struct {
	// Rootfs is the container's root file system.
	Rootfs string
	// Binds are those that HostBinds listed.
	Binds []Placed
	// Linked are the guest's own files that HostBinds found.
	Linked map[int]string
	// Shm is the pod's shared memory file system.
	Shm string
	// Devices are the paths of the device nodes that the guest makes itself.
	Devices map[string]bool
}

// find returns the bind of the spec's mount at index, if it is one.
func (p Paths) find(index int) (Placed, bool) {
	at := slices.IndexFunc(p.Binds, func(b Placed) bool { return b.Index == index })
	if at < 0 {
		return Placed{}, false
	}
	return p.Binds[at], true
}

// Rules are the operator's rules about what a container gets.
type Rules struct {
	// NoSeccomp leaves out the container's seccomp profile.
	NoSeccomp bool
	// First is set if the container is the sandbox's own, the pod's first.
	First bool
	// HostNamespaces gives a container that requests the host's PID or IPC
	// namespace its pod's; otherwise it is refused.
	HostNamespaces bool
}

// Guest is what Filter makes of a spec.
type Guest struct {
	// JSON is the encoded spec.
	JSON []byte
	// SharePID and ShareUser are set if the container joins the pod's PID or
	// user namespace, OwnUTS if it gets a UTS namespace separate from the
	// pod's.
	SharePID, ShareUser, OwnUTS bool
	// PIDOf is the host's process whose PID namespace the container joins, one
	// of its pod; 0 is the pod's first container.
	PIDOf int
	// Dropped names what was dropped and a user might miss.
	Dropped []string
	// Unconfined is set if the spec's seccomp profile was dropped because of
	// Rules.
	Unconfined bool
}

// Filter makes the guest's spec. host is not changed. It fails as Check does.
func Filter(host *specs.Spec, paths Paths, rules Rules) (*Guest, error) {
	spec, err := clone(host)
	if err != nil {
		return nil, err
	}
	if err := Check(spec, rules); err != nil {
		return nil, err
	}
	g := &Guest{}
	spec.Hooks = nil
	spec.Root.Path = paths.Rootfs
	g.filterProcess(spec.Process)
	g.filterMounts(spec, paths)
	filterCgroups(spec.Mounts) // The others were found by their places.
	g.filterSystemd(spec)
	g.filterNamespaces(spec, rules)
	g.dropDevices(spec, paths.Devices)
	g.filterLinux(spec.Linux, rules)
	if g.JSON, err = json.Marshal(spec); err != nil {
		return nil, fmt.Errorf("encode guest spec: %w", err)
	}
	return g, nil
}

// clone makes a deep copy by way of JSON, the form in which specs travel.
func clone(spec *specs.Spec) (*specs.Spec, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("copy spec: %w", err)
	}
	c := new(specs.Spec)
	if err := json.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("copy spec: %w", err)
	}
	return c, nil
}

// filterMounts replaces mounts' sources by the guest's, and drops the options
// that the host implements.
func (g *Guest) filterMounts(spec *specs.Spec, paths Paths) {
	mounts := spec.Mounts[:0]
	for i, m := range spec.Mounts {
		m.UIDMappings, m.GIDMappings = nil, nil
		m.Options = without(m.Options, idmapped...)
		bind, placed := paths.find(i)
		if placed {
			if bind.At == "" {
				continue
			}
			m.Source = bind.At
			if m.Type == socketType {
				m.Type, m.Options = "bind", append(without(m.Options, "bind", "rbind"), "bind")
			}
			if hasAny(m.Options, shared) {
				g.Dropped = append(g.Dropped, "propagation to the host of what is mounted below "+m.Destination)
			}
		} else if at := paths.Linked[i]; at != "" {
			m.Source = at
		} else if isShm(m) && isBind(m) {
			m.Source = paths.Shm
		}
		if bind.Writable {
			m.Options = without(m.Options, "ro", "rro")
		}
		m.Options = append(m.Options, bind.Flags...)
		mounts = append(mounts, m)
	}
	spec.Mounts = mounts
}

// dropDevices removes the host's device nodes, and the cgroup rules for the
// numbers of the host's disks: to the guest's kernel these mean nothing, or
// another device. The standard ones (/dev/null, ...) are made in every
// container, those in given by the agent; a FIFO is not a device and stays.
func (g *Guest) dropDevices(spec *specs.Spec, given map[string]bool) {
	var fifos []specs.LinuxDevice
	var disks, others []string
	for _, d := range spec.Linux.Devices {
		switch {
		case d.Type == "p":
			fifos = append(fifos, d)
		case given[d.Path]:
		case d.Type == "b":
			disks = append(disks, d.Path)
		default:
			others = append(others, d.Path)
		}
	}
	if len(disks) > 0 {
		g.Dropped = append(g.Dropped, "host disks, not given by a request or by privileged_host_disks: "+someOf(disks))
	}
	if len(others) > 0 {
		g.Dropped = append(g.Dropped, "devices of the host's: "+someOf(others))
	}
	if r := spec.Linux.Resources; r != nil {
		if lost := lostRules(r.Devices, spec.Linux.Devices); len(lost) > 0 {
			g.Dropped = append(g.Dropped, "cgroup rules for host disks that are not requested as devices: "+someOf(lost))
		}
		r.Devices = slices.DeleteFunc(r.Devices, allowsHostDisks)
	}
	spec.Linux.Devices = fifos
}

// lostRules lists the rules for numbers of the host's disks beside those that engines
// add for each device that is requested.
func lostRules(rules []specs.LinuxDeviceCgroup, requested []specs.LinuxDevice) []string {
	var lost []string
	for _, rule := range rules {
		has := func(d specs.LinuxDevice) bool {
			return d.Type == rule.Type && d.Major == *rule.Major && rule.Minor != nil && d.Minor == *rule.Minor
		}
		if !allowsHostDisks(rule) || slices.ContainsFunc(requested, has) {
			continue
		}
		minor := "*"
		if rule.Minor != nil && *rule.Minor != -1 {
			minor = strconv.FormatInt(*rule.Minor, 10)
		}
		lost = append(lost, fmt.Sprintf("b %d:%s", *rule.Major, minor))
	}
	return lost
}

// allowsHostDisks reports whether a rule is for block devices by their number. The
// number -1 is any (Docker's "*"), as none is.
func allowsHostDisks(d specs.LinuxDeviceCgroup) bool {
	return d.Allow && d.Type == "b" && d.Major != nil && *d.Major != -1
}

// someOf lists a few names: a privileged container's spec has all of the host's
// devices.
func someOf(names []string) string {
	const most = 5
	if more := len(names) - most; more > 0 {
		names = append(names[:most:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// filterProcess drops the security labels of the host's kernel, and what names
// its CPUs.
func (g *Guest) filterProcess(p *specs.Process) {
	p.ApparmorProfile, p.SelinuxLabel = "", ""
	if p.ExecCPUAffinity != nil {
		g.Dropped = append(g.Dropped, "the CPU affinity of execs")
	}
	p.ExecCPUAffinity = nil
}

func (g *Guest) filterLinux(l *specs.Linux, rules Rules) {
	l.CgroupsPath = ""
	l.MountLabel = ""
	if l.IntelRdt != nil {
		g.Dropped = append(g.Dropped, "the Intel RDT class")
	}
	if l.MemoryPolicy != nil {
		g.Dropped = append(g.Dropped, "the NUMA memory policy")
	}
	l.IntelRdt, l.MemoryPolicy = nil, nil
	if rules.NoSeccomp && l.Seccomp != nil {
		l.Seccomp, g.Unconfined = nil, true
	}
	if l.Resources != nil {
		g.filterResources(l.Resources)
	}
}
