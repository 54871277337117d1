package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/katabox/katabox/guest-image/internal/initramfs"
	"github.com/katabox/katabox/guest-image/internal/modules"
)

// moduleListPath is where the agent finds the list of modules.
const moduleListPath = "etc/katabox/modules"

// mountPoints are the directories that the agent mounts on.
var mountPoints = map[string]uint32{
	"dev": 0o755, "etc": 0o755, "proc": 0o555, "run": 0o755, "sys": 0o555, "tmp": 0o1777,
}

// group is the modules of one kind, in load order.
type group struct {
	// when is the list's word for the kind.
	when string
	mods []*modules.Module
	// archive is the zip file in which the modules lie together, for a group
	// that few pods load something of; else each is a file. It must be the
	// last file by name: the LZ4 compressor takes ever longer strides through
	// what it cannot compress, and misses what comes next.
	archive string
}

// chosen are the modules of an image. Each group needs no other modules than
// its own and those of the groups before it.
type chosen struct {
	set    *modules.Set
	groups []group
	// builtin are the modules that are part of this kernel, absent the optional
	// ones that it does not have.
	builtin, absent []string
}

// choose picks the modules that choice.go names, with all that they need.
// Those for the boot must exist. The others are optional: kernels merge small
// modules into larger ones (6.12 has nft_objref in nf_tables) and drop old
// ones, and a pod that needs none of them must not pay for that.
func choose(pkg *kernelPackage) (chosen, error) {
	set, err := modules.NewSet(pkg.modules, pkg.builtin)
	if err != nil {
		return chosen{}, err
	}
	c := chosen{set: set, groups: []group{
		{when: "boot"}, {when: "demand"}, {when: "kernel", archive: "lib/modules/" + pkg.release + "/modules.zip"},
	}}
	demand, noDemand := present(set, demandModules)
	kernel, noKernel := present(set, kernelModules)
	c.absent = slices.Concat(noDemand, noKernel)
	for _, name := range slices.Concat(bootModules, demand, kernel) {
		if set.BuiltIn(name) {
			c.builtin = append(c.builtin, name)
		}
	}
	var before []*modules.Module
	for i, names := range [][]string{bootModules, demand, kernel} {
		mods, err := set.LoadOrder(names, before)
		if err != nil {
			return chosen{}, err
		}
		c.groups[i].mods = mods
		before = append(before, mods...)
	}
	return c, nil
}

// present splits names into those that the kernel has and the others.
func present(set *modules.Set, names []string) (there, absent []string) {
	for _, name := range names {
		if set.Has(name) {
			there = append(there, name)
		} else {
			absent = append(absent, name)
		}
	}
	return there, absent
}

// list is the file at moduleListPath; its format is in doc.go.
func (c chosen) list() []byte {
	var out bytes.Buffer
	for _, name := range c.builtin {
		fmt.Fprintf(&out, "builtin %s - -\n", name)
	}
	listed := map[string]bool{}
	for _, g := range c.groups {
		for _, m := range g.mods {
			fmt.Fprintf(&out, "%s %s /%s %s", g.when, m.Name, g.path(m), c.needs(m, listed))
			for _, alias := range m.Aliases {
				if asked(alias) {
					fmt.Fprintf(&out, " %s", alias)
				}
			}
			out.WriteByte('\n')
			listed[m.Name] = true
		}
	}
	return out.Bytes()
}

// needs is the list's word for what m needs of the modules above it.
func (c chosen) needs(m *modules.Module, listed map[string]bool) string {
	hard, soft := c.set.Needs(m)
	var words []string
	for _, name := range hard {
		if listed[name] {
			words = append(words, name)
		}
	}
	for _, name := range soft {
		if listed[name] {
			words = append(words, "?"+name)
		}
	}
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ",")
}

// path is where the image has m.
func (g group) path(m *modules.Module) string {
	if g.archive != "" {
		return g.archive + "/" + m.Name + ".ko"
	}
	return m.Path
}

// String says how many modules there are of each kind, and their size.
func (c chosen) String() string {
	var words []string
	for _, g := range c.groups {
		words = append(words, fmt.Sprintf("%d %s (%s)", len(g.mods), g.when, mib(size(g.mods))))
	}
	return strings.Join(words, ", ")
}

// missing names the optional modules that the kernel does not have, for the
// end of a line; it is empty when it has all.
func (c chosen) missing() string {
	if len(c.absent) == 0 {
		return ""
	}
	return "; not in this kernel: " + strings.Join(c.absent, " ")
}

// size is the sum of the modules' sizes in bytes.
func size(mods []*modules.Module) int {
	sum := 0
	for _, m := range mods {
		sum += len(m.Data)
	}
	return sum
}

// archive makes the initial RAM file system.
func archive(agent []byte, c chosen) ([]byte, error) {
	var tree initramfs.Tree
	for dir, perm := range mountPoints {
		if err := tree.Dir(dir, perm); err != nil {
			return nil, err
		}
	}
	if err := tree.CharDevice("dev/console", 0o600, 5, 1); err != nil {
		return nil, err
	}
	if err := tree.CharDevice("dev/null", 0o666, 1, 3); err != nil {
		return nil, err
	}
	if err := tree.File("init", 0o755, agent); err != nil {
		return nil, err
	}
	if err := tree.File(moduleListPath, 0o644, c.list()); err != nil {
		return nil, err
	}
	if err := c.addFiles(&tree); err != nil {
		return nil, err
	}
	return tree.Archive()
}

// addFiles adds the modules themselves.
func (c chosen) addFiles(tree *initramfs.Tree) error {
	for _, g := range c.groups {
		if g.archive != "" {
			data, err := zipModules(g.mods)
			if err != nil {
				return fmt.Errorf("pack %s: %w", g.archive, err)
			}
			if err := tree.File(g.archive, 0o644, data); err != nil {
				return err
			}
			continue
		}
		for _, m := range g.mods {
			if err := tree.File(m.Path, 0o644, m.Data); err != nil {
				return err
			}
		}
	}
	return nil
}
