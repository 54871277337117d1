package guestspec

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// nsOfProcess matches a namespace's path by way of one of its processes
// (proc(5)).
var nsOfProcess = regexp.MustCompile(`^/proc/(self|thread-self|[0-9]{1,10})/ns/([a-z_]+)$`)

// wish is what a spec requests for one kind of namespace.
type wish struct {
	// host is set if the host's namespace is requested: by naming none, by naming
	// the runtime's own (self) or, from iSulad, by naming pid 1's.
	host bool
	// path is that of the namespace to join; empty makes a new one.
	path string
	// pid is the process in path, or 0.
	pid int
}

func wishFor(spec *specs.Spec, kind specs.LinuxNamespaceType) wish {
	i := slices.IndexFunc(spec.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == kind })
	if i < 0 {
		return wish{host: true}
	}
	w := wish{path: spec.Linux.Namespaces[i].Path}
	found := nsOfProcess.FindStringSubmatch(w.path)
	switch {
	case found == nil:
	case strings.HasSuffix(found[1], "self"):
		w.host = true
	default:
		w.pid, _ = strconv.Atoi(found[1]) // at most ten digits
		w.host = w.pid == 1
	}
	return w
}

// filterNamespaces keeps the kinds of namespace that a container gets inside
// its pod's guest, without paths. The agent provides IPC and network, which are
// the pod's, and UTS too unless the container has its own hostname.
//
// A pod's other containers join its PID or user namespace when their spec has a
// path: it leads to another container's, and in a pod that means the pod's (CRI
// gives /proc/<sandbox pid>/ns/pid). A container that requests the host's PID
// namespace, and may (Rules.HostNamespaces), gets the pod's too: the guest's
// initial namespace holds the agent, and what the container wants to see is the
// other containers.
func (g *Guest) filterNamespaces(spec *specs.Spec, rules Rules) {
	lost, _ := lostNamespaces(spec, rules) // Check has already returned any error
	g.Dropped = append(g.Dropped, lost...)
	first := rules.First
	pid, user, uts := wishFor(spec, specs.PIDNamespace), wishFor(spec, specs.UserNamespace), wishFor(spec, specs.UTSNamespace)
	g.SharePID = !first && (pid.host || pid.path != "")
	if g.SharePID && !pid.host {
		g.PIDOf = pid.pid
	}
	g.ShareUser = !first && user.path != ""
	g.OwnUTS = !first && !uts.host && uts.path == "" && spec.Hostname+spec.Domainname != ""
	own := []specs.LinuxNamespaceType{specs.PIDNamespace, specs.MountNamespace}
	for _, ns := range spec.Linux.Namespaces {
		switch ns.Type {
		case specs.CgroupNamespace, specs.UserNamespace, specs.TimeNamespace:
			own = append(own, ns.Type)
		}
	}
	spec.Linux.Namespaces = nil
	for _, kind := range own {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, specs.LinuxNamespace{Type: kind})
	}
}

// sharedByFlag are the namespaces for which engines' users can request the
// host's or another container's (--pid, --ipc, --uts), with what they then
// miss.
var sharedByFlag = []struct {
	kind specs.LinuxNamespaceType
	lost string
	// copied is set if the guest has a copy, which is what most users want.
	copied bool
}{
	{specs.PIDNamespace, "the host's processes (its PID namespace)", false},
	{specs.IPCNamespace, "the host's System V IPC and message queues (its IPC namespace)", false},
	{specs.UTSNamespace, "the host's UTS namespace, of which the guest has a copy", true},
}

// lostNamespaces refuses the host's namespaces, which a guest does not have;
// where the operator lets containers have their pod's instead, it returns what
// users then miss. It also refuses the namespaces of a container in another
// guest. A path that does not name a process is a namespace that the engine
// made for the pod (CRI-O).
func lostNamespaces(spec *specs.Spec, rules Rules) (lost []string, err error) {
	for _, ns := range sharedByFlag {
		w := wishFor(spec, ns.kind)
		switch {
		case w.host && !ns.copied && !rules.HostNamespaces:
			return nil, fmt.Errorf("linux.namespaces: the %s namespace is to be the host's, which a virtual machine cannot share: ask for the container's own or its pod's, "+
				"or set runtime.allow_host_namespaces = true, which gives the pod's: %w", ns.kind, errdefs.ErrInvalidArgument)
		case w.host:
			lost = append(lost, ns.lost)
		case rules.First && w.pid != 0:
			return nil, ofAnotherMachine(ns.kind, w)
		}
	}
	if user := wishFor(spec, specs.UserNamespace); rules.First && user.pid != 0 && !user.host {
		if !addedForNetwork(spec, user) {
			return nil, ofAnotherMachine(specs.UserNamespace, user)
		}
		lost = append(lost, fmt.Sprintf("the user namespace of process %d (it has a new one with the mappings of its spec)", user.pid))
	}
	for _, kind := range []specs.LinuxNamespaceType{specs.TimeNamespace, specs.CgroupNamespace, specs.MountNamespace} {
		if w := wishFor(spec, kind); w.path != "" {
			return nil, fmt.Errorf("linux.namespaces: the %s namespace is to be %s: it belongs to the host's kernel: %w", kind, w.path, errdefs.ErrInvalidArgument)
		}
	}
	return lost, nil
}

// addedForNetwork reports whether a user namespace is that of the process whose network
// namespace is named. Docker with userns-remap adds it to --network container:X (its
// daemon, WithNamespaces), and all its containers have the same mappings.
func addedForNetwork(spec *specs.Spec, user wish) bool {
	return user.pid == wishFor(spec, specs.NetworkNamespace).pid
}

func ofAnotherMachine(kind specs.LinuxNamespaceType, w wish) error {
	return fmt.Errorf("linux.namespaces: the %s namespace is to be that of process %d (%s): containers of different virtual machines cannot share a namespace: %w",
		kind, w.pid, w.path, errdefs.ErrInvalidArgument)
}

// namespaceKinds are those of the runtime specification (config-linux.md, Namespaces).
var namespaceKinds = []specs.LinuxNamespaceType{
	specs.PIDNamespace, specs.NetworkNamespace, specs.MountNamespace, specs.IPCNamespace, specs.UTSNamespace,
	specs.UserNamespace, specs.CgroupNamespace, specs.TimeNamespace,
}

// fileKinds are the kinds of namespace by the names of their files in a process's
// directory (namespaces(7)).
var fileKinds = map[string]specs.LinuxNamespaceType{
	"pid": specs.PIDNamespace, "pid_for_children": specs.PIDNamespace, "net": specs.NetworkNamespace, "mnt": specs.MountNamespace,
	"ipc": specs.IPCNamespace, "uts": specs.UTSNamespace, "user": specs.UserNamespace, "cgroup": specs.CgroupNamespace,
	"time": specs.TimeNamespace, "time_for_children": specs.TimeNamespace,
}

// checkNamespaces refuses unknown kinds, a process's namespace of another kind, and
// a kind that is listed twice: which of the two counts would be a guess.
func checkNamespaces(spec *specs.Spec) error {
	seen := make(map[specs.LinuxNamespaceType]bool)
	for _, ns := range spec.Linux.Namespaces {
		found := nsOfProcess.FindStringSubmatch(ns.Path)
		switch {
		case !slices.Contains(namespaceKinds, ns.Type):
			return fmt.Errorf("linux.namespaces: there is no kind %q, want one of %v: %w", ns.Type, namespaceKinds, errdefs.ErrInvalidArgument)
		case found != nil && fileKinds[found[2]] != ns.Type:
			return fmt.Errorf("linux.namespaces: the %s namespace is to be %s, which is a namespace of another kind: %w", ns.Type, ns.Path, errdefs.ErrInvalidArgument)
		case seen[ns.Type]:
			return fmt.Errorf("linux.namespaces: %s is there twice: %w", ns.Type, errdefs.ErrInvalidArgument)
		}
		seen[ns.Type] = true
	}
	return nil
}
