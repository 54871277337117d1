package qemu

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/katabox/katabox/hypervisor"
)

// fillRate is the minimum rate at which memory is allocated on the host, in MiB
// per second. A slow host was seen to allocate 1 GiB in 0.5 s.
const fillRate = 512

// fillTime is how much longer adding that much memory may take, at launch or later,
// if it is allocated up front.
func fillTime(m hypervisor.MemoryBacking, sizeMiB uint64) time.Duration {
	if !atOnce(m) {
		return 0
	}
	return time.Duration(sizeMiB) * time.Second / fillRate
}

// fillThreads is how many threads allocate it.
func fillThreads(spec hypervisor.Spec) uint32 { return max(spec.VCPUs, 1) }

// isPrivate reports whether the boot memory is a private mapping of its
// template's. What is plugged later is shared, but only its owner is asked for
// any of it: device back ends have one way to all of a machine's memory.
func isPrivate(spec hypervisor.Spec) bool {
	return spec.Template != nil && spec.Template.Sealed != nil
}

// atOnce reports whether memory is taken before the guest has it. A huge page
// is: if there were none left when it is touched, QEMU would die of SIGBUS.
func atOnce(m hypervisor.MemoryBacking) bool { return m.Prealloc || m.HugePageMiB != 0 }

func checkBacking(spec hypervisor.Spec) error {
	m := spec.Memory
	switch {
	case m.HugePageMiB&(m.HugePageMiB-1) != 0:
		return fmt.Errorf("huge pages of %d MiB: not a power of two", m.HugePageMiB)
	case m.HugePageMiB != 0 && spec.MemoryMiB%m.HugePageMiB != 0:
		return fmt.Errorf("memory of %d MiB: not whole huge pages of %d MiB", spec.MemoryMiB, m.HugePageMiB)
	case m.HugePageMiB != 0 && m.Dir != "":
		return errors.New("memory of huge pages and of files: want one of them")
	case m.File != "" && (m.Dir == "" || m.File != filepath.Base(m.File)):
		return fmt.Errorf("file of memory %q in directory %q: want a name in a directory", m.File, m.Dir)
	case m.Dir != "" && !filepath.IsAbs(m.Dir):
		return fmt.Errorf("directory for memory %q: not an absolute path", m.Dir)
	}
	return checkTemplate(spec)
}

// checkTemplate checks the memory of a machine that continues from another one.
func checkTemplate(spec hypervisor.Spec) error {
	switch saved := spec.Template != nil || spec.Awaits != nil; {
	case saved && spec.Memory != (hypervisor.MemoryBacking{}):
		return errors.New("memory of huge pages or files, or preallocated, for a machine from a template or a saved one")
	case spec.Template != nil && spec.Awaits != nil:
		return errors.New("a template for a machine that awaits another's state")
	}
	if isPrivate(spec) && (spec.Jail == nil || spec.Jail.UID == 0) {
		return errors.New("private memory for a machine whose user is not its own")
	}
	return nil
}

// memoryObject returns the host side of hot-plugged memory. It is shared,
// because device back ends in other processes access it.
func memoryObject(id string, sizeMiB uint64, m hypervisor.MemoryBacking) (add, remove command) {
	id, m.File = id+memorySuffix, ""
	return command{"object-add", backing(id, sizeMiB, m)}, command{objectDel, map[string]any{"id": id}}
}

// backing returns the properties of such an object (qapi/qom.json,
// MemoryBackendMemfdProperties and MemoryBackendFileProperties). A file in a
// directory has no name there: QEMU makes it and unlinks it (softmmu/physmem.c,
// file_ram_open).
func backing(id string, sizeMiB uint64, m hypervisor.MemoryBacking) map[string]any {
	props := map[string]any{"qom-type": "memory-backend-memfd", "id": id, "size": sizeMiB * mib, "share": true}
	if m.Dir != "" {
		props["qom-type"], props["mem-path"] = "memory-backend-file", m.Dir
	}
	if m.File != "" {
		props["mem-path"] = filepath.Join(m.Dir, m.File)
	}
	if m.HugePageMiB != 0 {
		props["hugetlb"], props["hugetlbsize"] = true, m.HugePageMiB*mib
	}
	if atOnce(m) {
		props["prealloc"] = true
	}
	return props
}

// bootMemory returns the object of the boot memory, in the command line's
// syntax.
func bootMemory(spec hypervisor.Spec, wiring Wiring) string {
	props := backing("mem", spec.MemoryMiB, spec.Memory)
	if isPrivate(spec) {
		// QEMU opens it for writing, although it never writes to a file that
		// it maps privately; only since 9.0 it can do without. Private pages
		// are not offered to the host's KSM, which would compare those of
		// different pods.
		props["qom-type"], props["mem-path"] = "memory-backend-file", fmt.Sprintf("%s/%d", jailDescriptors, wiring.MemoryFD)
		props["share"], props["merge"] = false, false
	}
	if atOnce(spec.Memory) {
		props["prealloc-threads"] = fillThreads(spec)
	}
	words := []string{fmt.Sprint(props["qom-type"])}
	delete(props, "qom-type")
	for _, name := range slices.Sorted(maps.Keys(props)) {
		words = append(words, name+"="+optionValue(props[name]))
	}
	return strings.Join(words, ",")
}

// optionValue writes a value for QEMU's command line, where a comma is written
// twice (QEMU's util/keyval.c).
func optionValue(v any) string {
	if on, ok := v.(bool); ok {
		return map[bool]string{true: "on", false: "off"}[on]
	}
	return strings.ReplaceAll(fmt.Sprint(v), ",", ",,")
}
