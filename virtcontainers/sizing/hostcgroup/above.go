package hostcgroup

import (
	"fmt"
	"path/filepath"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Above is where the limits above a pod's cgroup are: those of the ancestors of the one
// that the engine chose for the sandbox's own container. The closest of them is the pod's
// parent, for a pod of Kubernetes the kubelet's cgroup for it. The zero value has no
// limits.
type Above struct {
	parents []parent
	// hugePages is the size of the huge pages that the machine's memory is made of, as in
	// the names of their limits; empty for none.
	hugePages string
}

// parent is the pod's parent in one hierarchy.
type parent struct {
	hierarchy
	dir string
}

// OpenAbove finds where the limits are. Without a cgroupsPath there are none. root is
// where the host's cgroup file systems are; empty is DefaultRoot. hugePageMiB is the size
// of the huge pages that the machine's memory is made of; 0 is none.
func OpenAbove(root, cgroupsPath string, hugePageMiB uint64) (Above, error) {
	if cgroupsPath == "" {
		return Above{}, nil
	}
	if root == "" {
		root = DefaultRoot
	}
	path, err := podPath(cgroupsPath, "pod")
	if err != nil {
		return Above{}, err
	}
	found, err := hierarchies(root)
	if err != nil {
		return Above{}, err
	}
	a := Above{hugePages: hugepageSize(hugePageMiB)}
	for _, h := range found {
		a.parents = append(a.parents, parent{h, filepath.Dir(h.dir(path))})
	}
	return a, nil
}

// Any reports whether there can be limits.
func (a Above) Any() bool { return len(a.parents) > 0 }

// Limits are the limits above a pod's cgroup at one time, each NoLimit if there is none.
// They can be compared with ==.
type Limits struct {
	// Memory is the least limit of memory, in bytes, and Threads that of threads. Above
	// v2's memory.high, which the kubelet sets with MemoryQoS, the kernel slows down every
	// thread that needs memory, and a guest does not give it back: a machine has to stay
	// below that, too, and Memory is no more than it.
	Memory, Threads uint64
	// ParentMemory and ParentThreads are the limits of the pod's parent alone.
	ParentMemory, ParentThreads uint64
	// Hugepages is the least limit, in bytes, of the huge pages that the machine's memory
	// is made of.
	Hugepages uint64
}

// Limits reads the limits. Cgroups that do not exist have none.
func (a Above) Limits() (Limits, error) {
	l := Limits{NoLimit, NoLimit, NoLimit, NoLimit, NoLimit}
	for _, p := range a.parents {
		if err := p.lower(&l); err != nil {
			return Limits{}, err
		}
		least, _, err := p.leastHugepages(a.hugePages)
		if err != nil {
			return Limits{}, err
		}
		l.Hugepages = min(l.Hugepages, least)
	}
	return l, nil
}

// lower lowers the limits of memory and threads to those of one hierarchy.
func (p parent) lower(l *Limits) error {
	if p.limitsMemory() {
		least, err := p.memoryLimit(p.dir)
		if err != nil {
			return err
		}
		own, err := readLimit(filepath.Join(p.dir, p.memoryFile()))
		if err != nil {
			return err
		}
		l.Memory, l.ParentMemory = min(l.Memory, least), min(l.ParentMemory, own)
	}
	if p.limitsThreads() {
		least, _, err := p.leastAbove(p.dir, threadsFile)
		if err != nil {
			return err
		}
		own, err := readLimit(filepath.Join(p.dir, threadsFile))
		if err != nil {
			return err
		}
		l.Threads, l.ParentThreads = min(l.Threads, least), min(l.ParentThreads, own)
	}
	return nil
}

// Hugepages returns how much of huge pages the pod's parent allows, for each of their
// sizes that it limits.
func (a Above) Hugepages() ([]specs.LinuxHugepageLimit, error) {
	for _, p := range a.parents {
		if p.limitsHugepages() {
			return hugepageLimits(p.dir)
		}
	}
	return nil, nil
}

// CheckHugepages returns an error that names a limit above the pod's cgroup if it is less
// than a machine's memory of huge pages (OpenAbove). The error is an
// errdefs.ErrFailedPrecondition.
func (a Above) CheckHugepages(memoryMiB uint64) error {
	for _, p := range a.parents {
		limit, file, err := p.leastHugepages(a.hugePages)
		if err != nil {
			return err
		}
		if limit>>20 < memoryMiB {
			return fmt.Errorf("%s allows %d MiB of huge pages, and %d MiB of the machine's memory would count there: %w",
				file, limit>>20, memoryMiB, errdefs.ErrFailedPrecondition)
		}
	}
	return nil
}
