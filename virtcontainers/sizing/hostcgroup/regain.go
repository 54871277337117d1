package hostcgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// note remembers the controllers of the pod's v2 cgroups, for Regain.
func (p *place) note() {
	if !p.unified {
		return
	}
	p.had = map[string][]string{}
	for _, dir := range p.dirs() {
		if now, err := words(filepath.Join(dir, controllersFile)); err == nil {
			p.had[dir] = now
		}
	}
}

// CanLose reports whether another program can turn off controllers of the pod's
// cgroups: with v2 each cgroup turns on those of its children.
func (c *Cgroup) CanLose() bool {
	return slices.ContainsFunc(c.places, func(p place) bool { return p.unified })
}

// Regain turns on those controllers of the pod's v2 cgroups again that were turned
// off after Make, and returns their names. All their settings are the kernel's
// defaults then: SetBound and SetPlace must follow.
//
// systemd turns off what its own units do not need in its slices whenever it loads
// its configuration (daemon-reload), and the kubelet puts pods into slices.
func (c *Cgroup) Regain() []string {
	var regained []string
	for _, p := range c.places {
		for dir, had := range p.had {
			regained = append(regained, p.regain(dir, had)...)
		}
	}
	slices.Sort(regained)
	return slices.Compact(regained)
}

// regain is Regain for one cgroup.
func (p place) regain(dir string, had []string) []string {
	file := filepath.Join(dir, controllersFile)
	now, err := words(file)
	lost := without(had, now)
	if err != nil || len(lost) == 0 {
		return nil // The cgroup is gone, or whole.
	}
	for _, above := range p.above(dir) {
		subtree := filepath.Join(above, subtreeFile)
		on, _ := words(subtree)
		for _, name := range without(lost, on) {
			_ = write(subtree, "+"+name) // What is refused is not found below.
		}
	}
	now, _ = words(file)
	return without(lost, without(lost, now))
}

// above returns the cgroups above dir, the hierarchy's root first.
func (h hierarchy) above(dir string) []string {
	var list []string
	for dir != h.mount && dir != "/" {
		dir = filepath.Dir(dir)
		list = append(list, dir)
	}
	slices.Reverse(list)
	return list
}

// words reads a file that is a list of words.
func words(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	return strings.Fields(string(text)), err
}

// without returns what of all is not in some.
func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return slices.Contains(some, name) })
}
