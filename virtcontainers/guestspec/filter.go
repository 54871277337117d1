package guestspec

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Paths says where in the guest the host's files are found.
type Paths struct {
	// Rootfs is the container's root file system.
	Rootfs string
	// Binds holds the source of each mount that HostBinds listed, by index.
	Binds map[int]string
	// Shm is the pod's shared memory file system.
	Shm string
}

// Guest is what Filter makes of a spec.
type Guest struct {
	// JSON is the encoded spec.
	JSON []byte
	// SharePID says that the container joins the pod's PID namespace.
	SharePID bool
	// Hostname is the name the spec gives its UTS namespace.
	Hostname string
	// Dropped names what was left out and a user might miss.
	Dropped []string
}

// maxSwappiness is the largest vm.swappiness a cgroup takes; engines send
// 2^64-1 for "not set" (iSulad).
const maxSwappiness = 200

// Filter makes the guest's spec. host is not changed.
func Filter(host *specs.Spec, paths Paths) (*Guest, error) {
	spec, err := clone(host)
	if err != nil {
		return nil, err
	}
	g := &Guest{Hostname: spec.Hostname, SharePID: sharesPID(spec)}
	spec.Hooks = nil
	spec.Root.Path = paths.Rootfs
	spec.Process.ApparmorProfile, spec.Process.SelinuxLabel = "", ""
	filterMounts(spec, paths)
	filterNamespaces(spec)
	g.dropDevices(spec)
	filterLinux(spec.Linux)
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

// sharesPID: a PID namespace with a path is another container's, and in a pod
// that means the pod's; CRI gives /proc/<sandbox pid>/ns/pid.
func sharesPID(spec *specs.Spec) bool {
	return slices.ContainsFunc(spec.Linux.Namespaces, func(ns specs.LinuxNamespace) bool {
		return ns.Type == specs.PIDNamespace && ns.Path != ""
	})
}

func filterMounts(spec *specs.Spec, paths Paths) {
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		if source, ok := paths.Binds[i]; ok {
			m.Source = source
		} else if m.Destination == ShmDestination && isBind(*m) {
			m.Source = paths.Shm
		}
	}
}

// filterNamespaces leaves the kinds of namespace that a container gets inside
// its pod's guest, without paths. IPC, UTS and network are the pod's and are
// the agent's to give; time is the guest's. A container that asks for the
// host's PID namespace gets one of its own: the guest's holds the agent.
func filterNamespaces(spec *specs.Spec) {
	own := []specs.LinuxNamespaceType{specs.PIDNamespace, specs.MountNamespace}
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type == specs.CgroupNamespace || ns.Type == specs.UserNamespace && ns.Path == "" {
			own = append(own, ns.Type)
		}
	}
	spec.Linux.Namespaces = nil
	for _, kind := range own {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: kind})
	}
}

// dropDevices removes the host's device nodes: their numbers mean nothing, or
// something else, to the guest's kernel. The standard ones (/dev/null, ...)
// are made in every container.
func (g *Guest) dropDevices(spec *specs.Spec) {
	for _, d := range spec.Linux.Devices {
		g.Dropped = append(g.Dropped, "device "+d.Path)
	}
	spec.Linux.Devices = nil
}

func filterLinux(l *specs.Linux) {
	l.CgroupsPath = ""
	l.MountLabel = ""
	l.IntelRdt = nil
	l.Personality = nil
	if l.Resources != nil {
		filterResources(l.Resources)
	}
}

// filterResources leaves the limits that the guest's cgroups enforce. CPU and
// memory node lists and block device numbers are the host's.
func filterResources(r *specs.LinuxResources) {
	r.Network, r.Rdma, r.Unified = nil, nil, nil
	if r.CPU != nil {
		r.CPU.Cpus, r.CPU.Mems = "", ""
		r.CPU.RealtimePeriod, r.CPU.RealtimeRuntime = nil, nil
	}
	if r.Memory != nil && r.Memory.Swappiness != nil && *r.Memory.Swappiness > maxSwappiness {
		r.Memory.Swappiness = nil
	}
	if r.BlockIO != nil {
		r.BlockIO = &specs.LinuxBlockIO{Weight: r.BlockIO.Weight}
	}
}
