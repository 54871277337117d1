package config

import (
	"fmt"
	"slices"
	"strings"
)

// warn writes the warnings about settings without effect.
func (b *builder) warn() {
	var ignored []string
	for _, s := range b.unknown {
		if table, ok := otherHypervisor(s.name); ok {
			if !slices.Contains(ignored, table) {
				ignored = append(ignored, table)
				b.draft.warnf("%s: table %s is ignored: hypervisor.qemu is the only hypervisor supported", s.origin, table)
			}
			continue
		}
		b.draft.warnf("%s: unknown key %s is ignored", s.origin, s.name)
	}
	b.warnIdle()
}

// warnIdle warns about each refused key, with the reason, and lists those that
// are not implemented in one warning. The guest's image gets its own warning:
// it is what the operator wants to boot.
func (b *builder) warnIdle() {
	var names []string
	for _, s := range b.idle {
		switch k := keysByName[s.name]; {
		case k.state == refused:
			b.draft.warnf("%s: %s is ignored: %s", s.origin, s.name, k.doc)
		case s.name == "hypervisor.qemu.image":
			b.draft.warnf("%s: hypervisor.qemu.image is not implemented yet and is ignored: the guest boots from the initrd %s",
				s.origin, b.draft.Hypervisor.Initrd)
		default:
			names = append(names, s.name)
		}
	}
	if len(names) > 0 {
		slices.Sort(names)
		b.draft.warnf("keys not implemented yet are ignored: %s", strings.Join(names, ", "))
	}
}

// warnParts warns about items of enable_annotations that enable nothing because
// they match only parts of names. A list written for Kata Containers, which
// matches parts, may have such items.
func (d *draft) warnParts() {
	var names []string
	for name := range annotationsByName {
		if suffix, guarded := strings.CutPrefix(name, hypervisorPrefix); guarded {
			names = append(names, suffix)
		}
	}
	slices.Sort(names)
	for _, e := range d.Annotations.Enabled {
		part := slices.IndexFunc(names, func(name string) bool { return searched(e, name) })
		whole := slices.ContainsFunc(names, func(name string) bool { return enabled([]string{e}, name) })
		if part >= 0 && !whole {
			d.warnf("%s: %s has %s, which matches only a part of %s or of others: it enables nothing; write the whole name, or %s",
				d.Origins[enableKey], enableKey, show(e), names[part], show(".*"+e+".*"))
		}
	}
}

// otherHypervisor returns the table of a hypervisor that is not supported.
func otherHypervisor(name string) (table string, ok bool) {
	rest, ok := strings.CutPrefix(name, "hypervisor.")
	if !ok {
		return "", false
	}
	which, _, _ := strings.Cut(rest, ".")
	return "hypervisor." + which, which != "qemu"
}

// warnf adds a warning, once: a pod's annotations resolve values of the file again.
func (c *Config) warnf(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(c.Warnings, text) {
		c.Warnings = append(c.Warnings, text)
	}
}
