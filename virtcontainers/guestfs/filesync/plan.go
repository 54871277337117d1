package filesync

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
)

// step is one thing that the guest must do.
type step struct {
	path string
	// want is what the path shall be; of kind unknown, it shall not exist.
	want entry
}

// plan returns the steps that turn the guest's files into those wanted, in this
// order: directories from the top down and the files in them, links, removals.
func plan(has, want tree) []step {
	var made, links, gone []step
	replaced := map[string]bool{}
	for _, p := range slices.Sorted(maps.Keys(want)) {
		e := want[p]
		old, there := has[p]
		there = there && !anyAbove(replaced, p)
		if there && old == e {
			continue
		}
		if there && inTheWay(old.kind, e.kind) {
			made = append(made, step{path: p})
			replaced[p] = true
		}
		if e.kind == symlink {
			links = append(links, step{p, e})
		} else {
			made = append(made, step{p, e})
		}
	}
	for _, p := range slices.Sorted(maps.Keys(has)) {
		_, stays := want[p]
		// The content of a directory is removed with it.
		if !stays && want[parent(p)].kind == directory && !anyAbove(replaced, p) {
			gone = append(gone, step{path: p})
		}
	}
	slices.SortStableFunc(links, func(a, b step) int { return cmp.Compare(rank(a.path), rank(b.path)) })
	return slices.Concat(made, links, gone)
}

// inTheWay reports whether a file must be removed before another can be in its
// place: one of them is a directory, or may be one.
func inTheWay(old, now kind) bool {
	return old == unknown || (old == directory) != (now == directory)
}

// rank puts first the link that switches a Kubernetes volume to a new version:
// other links lead through it.
func rank(p string) int {
	if path.Base(p) == "..data" {
		return 0
	}
	return 1
}

// parent is the directory of a path; the root's own is "".
func parent(p string) string {
	dir, _ := path.Split(p)
	return strings.TrimSuffix(dir, "/")
}

// anyAbove reports whether a directory above a path is in a set.
func anyAbove(set map[string]bool, p string) bool {
	for p != "" {
		p = parent(p)
		if set[p] {
			return true
		}
	}
	return false
}

// did records that the guest has done a step.
func (t tree) did(s step) {
	if s.want.kind != unknown {
		t[s.path] = s.want
		return
	}
	t.below(s.path, func(p string, _ entry) { delete(t, p) })
}

// doubts records that the guest may have done a step.
func (t tree) doubts(s step) {
	if s.want.kind != unknown {
		old, there := t[s.path]
		e := entry{kind: s.want.kind, doubt: true}
		if there && (old.kind == directory) != (e.kind == directory) {
			e.kind = unknown
		}
		t[s.path] = e
		return
	}
	t.below(s.path, func(p string, e entry) { t[p] = entry{kind: e.kind, doubt: true} })
}

// below calls f for a path and all below it; f may change the tree.
func (t tree) below(top string, f func(p string, e entry)) {
	for p, e := range maps.Clone(t) {
		if p == top || top == "" || strings.HasPrefix(p, top+"/") {
			f(p, e)
		}
	}
}
