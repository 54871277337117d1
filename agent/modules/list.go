package modules

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// ListFile is the path of the image's list of modules.
const ListFile = "/etc/katabox/modules"

// When says when a module is loaded.
type When string

// The values in the list.
const (
	// Boot modules are loaded at start.
	Boot When = "boot"
	// Demand modules are loaded when the host requests them by name.
	Demand When = "demand"
	// Kernel modules are loaded when the kernel requests them.
	Kernel When = "kernel"
	// Builtin modules are part of the kernel: there is nothing to load.
	Builtin When = "builtin"
)

var whens = []When{Boot, Demand, Kernel, Builtin}

// Module is one line of the list.
type Module struct {
	When       When
	Name, Path string
	// Needs are the names of modules that must be loaded first. Those that are
	// not in the list are built into the kernel.
	Needs []Need
	// Aliases are the other names by which the kernel requests it.
	Aliases []string
}

// Need is one module that another one needs.
type Need struct {
	Name string
	// Soft is set if the other one works without it when it cannot be loaded.
	Soft bool
}

// List is the modules of an image in load order: a module follows those that it
// needs.
type List []Module

// ReadList reads the list at path. A missing file is an empty list: every
// driver may be built in.
func ReadList(path string) (List, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read module list: %w", err)
	}
	defer f.Close()
	list, err := ParseList(f)
	if err != nil {
		return nil, fmt.Errorf("read module list: %w", err)
	}
	return list, nil
}

// ParseList reads lines "WHEN NAME PATH NEEDS [ALIAS...]". Empty lines and
// those that begin with '#' are skipped.
func ParseList(r io.Reader) (List, error) {
	var list List
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		when := When(fields[0])
		if len(fields) < 4 || !slices.Contains(whens, when) {
			return nil, fmt.Errorf("line %d: want \"boot|demand|kernel|builtin NAME PATH NEEDS [ALIAS...]\"", n)
		}
		list = append(list, Module{
			When: when, Name: fields[1], Path: fields[2],
			Needs: parseNeeds(fields[3]), Aliases: fields[4:],
		})
	}
	return list, lines.Err()
}

// parseNeeds reads "-" for none, or names separated by commas. A question mark
// before a name makes it a soft need.
func parseNeeds(word string) []Need {
	if word == "-" {
		return nil
	}
	var needs []Need
	for name := range strings.SplitSeq(word, ",") {
		name, soft := strings.CutPrefix(name, "?")
		needs = append(needs, Need{Name: name, Soft: soft})
	}
	return needs
}

// Find returns the index of the module with that name, or -1.
func (l List) Find(name string) int {
	return slices.IndexFunc(l, func(m Module) bool { return sameName(m.Name, name) })
}

// Lookup returns the indexes of the modules that the kernel means by name: a
// module's name or an alias, which several modules may have.
func (l List) Lookup(name string) []int {
	var places []int
	for at, m := range l {
		if m.When == Builtin {
			continue
		}
		if sameName(m.Name, name) || slices.ContainsFunc(m.Aliases, func(a string) bool { return sameName(a, name) }) {
			places = append(places, at)
		}
	}
	return places
}

// sameName compares names as the kernel does: '-' and '_' are equal.
func sameName(a, b string) bool {
	return a == b || strings.ReplaceAll(a, "-", "_") == strings.ReplaceAll(b, "-", "_")
}
