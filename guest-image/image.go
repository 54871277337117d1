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

// group has the modules of one kind, in load order.
type group struct {
	// when is the kind's name in the list.
	when string
	mods []*modules.Module
	// archive is the zip file with the modules, for a group of which few pods
	// load anything; without it each module is a file. It must be the last file
	// by name: the LZ4 compressor skips ever more bytes in data that it cannot
	// compress, and misses what follows.
	archive string
}

// chosen has the modules of an image. Each group needs only its own modules and
// those of the groups before it.
type chosen struct {
	set    *modules.Set
	groups []group
	// builtin are the modules that are part of this kernel, absent the optional
	// modules that it lacks.
	builtin, absent []string
}

// choose selects the modules that choice.go names and those of more, and their
// dependencies. Those for the boot must exist, and those of more, which the kernel is
// to request, too. The others are optional: kernels merge small modules
// into larger ones (6.12 has nft_objref in nf_tables) and drop old ones, and a
// pod that needs none of them must not fail because of that.
func choose(pkg *kernelPackage, more []string) (chosen, error) {
	set, err := modules.NewSet(pkg.modules, pkg.builtin)
	if err != nil {
		return chosen{}, err
	}
	c := chosen{set: set, groups: []group{
		{when: "boot"}, {when: "demand"}, {when: "kernel", archive: "lib/modules/" + pkg.release + "/modules.zip"},
	}}
	demand, noDemand := present(set, demandModules)
	kernel, noKernel := present(set, kernelModules)
	if _, missing := present(set, more); len(missing) > 0 {
		return chosen{}, fmt.Errorf("kernel %s has no module %s: want names as those of modprobe(8); linux-image-amd64 (-kernel-package) has more modules", pkg.release, strings.Join(missing, " "))
	}
	kernel = slices.Concat(kernel, more)
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

// present splits names into those that the kernel has and those that it lacks.
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

// list returns the file at moduleListPath; doc.go describes its format.
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

// needs returns the NEEDS field of m's line in the list.
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

// path returns m's path in the image.
func (g group) path(m *modules.Module) string {
	if g.archive != "" {
		return g.archive + "/" + m.Name + ".ko"
	}
	return m.Path
}

// String returns the number of modules of each kind, and their size.
func (c chosen) String() string {
	var words []string
	for _, g := range c.groups {
		words = append(words, fmt.Sprintf("%d %s (%s)", len(g.mods), g.when, mib(size(g.mods))))
	}
	return strings.Join(words, ", ")
}

// missing returns the optional modules that the kernel lacks, for the end of a
// line; "" if it has all.
func (c chosen) missing() string {
	if len(c.absent) == 0 {
		return ""
	}
	return "; not in this kernel: " + strings.Join(c.absent, " ")
}

// size returns the sum of the modules' sizes in bytes.
func size(mods []*modules.Module) int {
	sum := 0
	for _, m := range mods {
		sum += len(m.Data)
	}
	return sum
}

// archive makes the initial RAM file system.
func archive(agent []byte, tools tools, c chosen) ([]byte, error) {
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
	if err := tools.addFiles(&tree); err != nil {
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
