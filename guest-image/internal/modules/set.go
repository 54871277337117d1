package modules

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// Module is one module of a kernel.
type Module struct {
	Info
	// Path is the module's path in the package, without a compression suffix:
	// "lib/modules/RELEASE/kernel/fs/fuse/fuse.ko".
	Path string
	// Data is the module's ELF.
	Data []byte
}

// Set has all modules of one kernel.
type Set struct {
	byName  map[string]*Module
	byAlias map[string][]string
	builtin map[string]bool
}

// NewSet returns the set of mods. builtin is the package's modules.builtin:
// one path a line, for each module that the kernel contains.
func NewSet(mods []*Module, builtin []byte) (*Set, error) {
	s := &Set{byName: map[string]*Module{}, byAlias: map[string][]string{}, builtin: map[string]bool{}}
	for _, m := range mods {
		if other := s.byName[m.Name]; other != nil {
			return nil, fmt.Errorf("two modules are named %s: %s and %s", m.Name, other.Path, m.Path)
		}
		s.byName[m.Name] = m
		for _, alias := range m.Aliases {
			s.byAlias[alias] = append(s.byAlias[alias], m.Name)
		}
	}
	for _, names := range s.byAlias {
		slices.Sort(names)
	}
	lines := bufio.NewScanner(bytes.NewReader(builtin))
	for lines.Scan() {
		s.builtin[normal(strings.TrimSuffix(path.Base(lines.Text()), ".ko"))] = true
	}
	return s, lines.Err()
}

// LoadOrder returns the modules that names need, each after its dependencies,
// without those in loaded (nil: none) and those built in. A name that the kernel
// does not have is an error; a missing soft dependency is not.
func (s *Set) LoadOrder(names []string, loaded []*Module) ([]*Module, error) {
	w := walk{set: s, state: map[string]visit{}}
	for _, m := range loaded {
		w.state[m.Name] = done
	}
	for _, name := range names {
		if err := w.need(normal(name)); err != nil {
			return nil, fmt.Errorf("order modules for %s: %w", name, err)
		}
	}
	return w.order, nil
}

// Has reports whether the kernel has name, as a module or built in.
func (s *Set) Has(name string) bool {
	name = normal(name)
	return s.byName[name] != nil || s.builtin[name]
}

// BuiltIn reports whether name is part of the kernel.
func (s *Set) BuiltIn(name string) bool { return s.builtin[normal(name)] }

// Needs returns the names of the modules that m needs directly, and of those that
// it wants but can do without.
func (s *Set) Needs(m *Module) (hard, soft []string) {
	for _, name := range m.SoftPre {
		soft = append(soft, s.standsFor(name)...)
	}
	return m.Depends, soft
}

// standsFor returns the modules that a name or an alias refers to.
func (s *Set) standsFor(soft string) []string {
	if s.byName[normal(soft)] != nil {
		return []string{normal(soft)}
	}
	return s.byAlias[soft]
}

type visit int

const (
	unseen visit = iota
	open         // its dependencies are being walked
	done
)

// walk is one depth-first walk over the dependencies.
type walk struct {
	set   *Set
	state map[string]visit
	order []*Module
}

func (w *walk) need(name string) error {
	m := w.set.byName[name]
	switch {
	case w.state[name] == done, m == nil && w.set.builtin[name]:
		return nil
	case w.state[name] == open:
		return fmt.Errorf("module %s depends on itself", name)
	case m == nil:
		return fmt.Errorf("the kernel package has no module %s", name)
	}
	w.state[name] = open
	for _, soft := range m.SoftPre {
		w.want(soft)
	}
	for _, dep := range m.Depends {
		if err := w.need(dep); err != nil {
			return fmt.Errorf("dependency of %s: %w", name, err)
		}
	}
	w.state[name] = done
	w.order = append(w.order, m)
	return nil
}

// want follows a soft dependency, which is a name, or an alias of any number of
// modules. One that cannot be loaded first, because it leads back to a module
// being walked or needs a missing module, is left out with its dependencies.
func (w *walk) want(soft string) {
	for _, name := range w.set.standsFor(soft) {
		trial := walk{set: w.set, state: maps.Clone(w.state), order: slices.Clone(w.order)}
		if err := trial.need(name); err == nil {
			*w = trial
		}
	}
}
