package initramfs

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// File type bits of a mode, from stat(2).
const (
	typeChar = 0o020000
	typeDir  = 0o040000
	typeFile = 0o100000
	typeLink = 0o120000
	permMask = 0o7777
)

// entry is one file of an archive.
type entry struct {
	mode         uint32
	major, minor uint32
	data         []byte
}

// Tree is the content of an archive. The zero value is an empty tree.
// It is not safe for concurrent use.
type Tree struct {
	entries map[string]entry
}

// Dir adds a directory. An existing one gets the new permissions.
func (t *Tree) Dir(name string, perm uint32) error {
	return t.add(name, entry{mode: typeDir | perm&permMask})
}

// File adds a regular file. data stays the caller's and must not change before
// the archive is written.
func (t *Tree) File(name string, perm uint32, data []byte) error {
	return t.add(name, entry{mode: typeFile | perm&permMask, data: data})
}

// Symlink adds a symbolic link to target.
func (t *Tree) Symlink(name, target string) error {
	return t.add(name, entry{mode: typeLink | 0o777, data: []byte(target)})
}

// CharDevice adds a character device node.
func (t *Tree) CharDevice(name string, perm, major, minor uint32) error {
	return t.add(name, entry{mode: typeChar | perm&permMask, major: major, minor: minor})
}

// add adds e and, with mode 0755, each missing directory above it.
func (t *Tree) add(name string, e entry) error {
	clean := strings.TrimPrefix(path.Clean("/"+name), "/")
	if clean == "" || strings.ContainsRune(clean, 0) {
		return fmt.Errorf("add %q to archive: not a path", name)
	}
	if t.entries == nil {
		t.entries = map[string]entry{}
	}
	if old, ok := t.entries[clean]; ok && old.mode&e.mode&typeDir == 0 {
		return fmt.Errorf("add %q to archive: it exists already", name)
	}
	for dir := path.Dir(clean); dir != "."; dir = path.Dir(dir) {
		parent, ok := t.entries[dir]
		if ok && parent.mode&typeDir == 0 {
			return fmt.Errorf("add %q to archive: %s is not a directory", name, dir)
		}
		if !ok {
			t.entries[dir] = entry{mode: typeDir | 0o755}
		}
	}
	t.entries[clean] = e
	return nil
}

// names returns the paths in the tree in archive order: the kernel does not make
// missing directories, so each comes before its content.
func (t *Tree) names() []string {
	names := make([]string, 0, len(t.entries))
	for name := range t.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
