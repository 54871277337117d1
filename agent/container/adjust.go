package container

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// cgroupParent is the cgroup below which each container has its own.
const cgroupParent = "/katabox"

// Placement is where in the pod a container goes.
type Placement struct {
	ID string
	// IPC and UTS are the pod's namespaces, as paths; empty makes new ones.
	IPC, UTS string
	// PID is the namespace to join; empty makes a new one. Joined, if it is not nil,
	// is what PID leads to.
	PID    string
	Joined *os.File
	// User is the user namespace to join for a container that has one; empty
	// makes a new one.
	User string
	// Mqueue and Sysfs are mounts of these file systems for a container in a
	// user namespace, which cannot make its own; empty if there are none.
	Mqueue, Sysfs string
	// HasHostname reports that the UTS namespace to join has a hostname already.
	// The spec's is then not set; its domain name is.
	HasHostname bool
}

// Close closes Joined, once the container is made.
func (p Placement) Close() {
	if p.Joined != nil {
		_ = p.Joined.Close()
	}
}

// adjust makes spec fit the guest, in place. It returns the sysctls of the
// network, which belong to the guest itself and not to the container.
func adjust(spec *specs.Spec, at Placement) (netSysctls map[string]string) {
	spec.Hooks = nil
	spec.Annotations = nil
	if at.HasHostname {
		spec.Hostname = ""
	}
	if spec.Linux == nil {
		spec.Linux = &specs.Linux{}
	}
	if spec.Process != nil {
		adjustProcess(spec.Process) // The host has said what is lost.
	}
	l := spec.Linux
	l.CgroupsPath = cgroupParent + "/" + at.ID
	l.Namespaces = namespaces(l.Namespaces, at)
	if slices.ContainsFunc(l.Namespaces, isUser) {
		bindMounts(spec.Mounts, at)
	}
	l.IntelRdt, l.NetDevices, l.MemoryPolicy = nil, nil, nil
	l.MountLabel = ""
	if l.Seccomp != nil {
		l.Seccomp.ListenerPath, l.Seccomp.ListenerMetadata = "", ""
	}
	if l.Resources != nil {
		adjustResources(l.Resources)
	}
	l.Sysctl, netSysctls = splitSysctls(l.Sysctl)
	return netSysctls
}

// adjustProcess drops what only the host's kernel could honour, and names what a user
// might miss of it.
func adjustProcess(p *specs.Process) (lost []string) {
	p.ApparmorProfile, p.SelinuxLabel = "", ""
	if p.ExecCPUAffinity != nil { // Numbers of the host's CPUs.
		lost = append(lost, "the CPU affinity of an exec")
	}
	p.ExecCPUAffinity = nil
	return lost
}

// adjustResources keeps what means the same in the guest: memory, CPU time,
// pids, huge pages, a weight. CPU and device numbers are the host's, and cgroup
// v2 has no swappiness (callers send 2^64-1 for "not set").
func adjustResources(r *specs.LinuxResources) {
	r.Network, r.Rdma = nil, nil
	if r.BlockIO != nil {
		r.BlockIO = &specs.LinuxBlockIO{Weight: r.BlockIO.Weight}
	}
	if r.CPU != nil {
		r.CPU.Cpus, r.CPU.Mems = "", ""
		r.CPU.RealtimePeriod, r.CPU.RealtimeRuntime = nil, nil
	}
	if r.Memory != nil {
		r.Memory.Swappiness = nil
		r.Memory.Kernel, r.Memory.KernelTCP = nil, nil //nolint:staticcheck // Deprecated, and still sent.
		r.Memory.DisableOOMKiller = nil
	}
}

// namespaces is what a container gets, whatever the spec says of the pod's. A user or
// time namespace is made when asked for; the network is the guest's. A cgroup namespace
// is always made: engines of hosts with cgroup v1 ask for none, and there a container's
// cgroup mounts show its own cgroups alone; here they would show the whole pod's.
func namespaces(asked []specs.LinuxNamespace, at Placement) []specs.LinuxNamespace {
	list := []specs.LinuxNamespace{
		{Type: specs.MountNamespace},
		{Type: specs.PIDNamespace, Path: at.PID},
		{Type: specs.IPCNamespace, Path: at.IPC},
		{Type: specs.UTSNamespace, Path: at.UTS},
		{Type: specs.CgroupNamespace},
	}
	for _, ns := range asked {
		switch ns.Type {
		case specs.UserNamespace:
			list = append(list, specs.LinuxNamespace{Type: ns.Type, Path: at.User})
		case specs.TimeNamespace:
			list = append(list, specs.LinuxNamespace{Type: ns.Type})
		}
	}
	return list
}

func isUser(ns specs.LinuxNamespace) bool { return ns.Type == specs.UserNamespace }

// bindMounts makes mounts of the pod's namespaces binds.
func bindMounts(mounts []specs.Mount, at Placement) {
	sources := map[string]string{"mqueue": at.Mqueue, "sysfs": at.Sysfs}
	for i := range mounts {
		if source := sources[mounts[i].Type]; source != "" {
			mounts[i].Type, mounts[i].Source = "bind", source
			mounts[i].Options = append(slices.Clone(mounts[i].Options), "bind")
		}
	}
}

// splitSysctls parts the network's sysctls from the others. Both "net.x" and
// "net/x" spellings exist (sysctl(8)).
func splitSysctls(all map[string]string) (own, network map[string]string) {
	own = maps.Clone(all)
	network = map[string]string{}
	for key, value := range all {
		if strings.HasPrefix(key, "net.") || strings.HasPrefix(key, "net/") {
			network[key] = value
			delete(own, key)
		}
	}
	return own, network
}
