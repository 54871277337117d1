package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// dropInDir is the directory, beside the configuration file, whose *.toml
// files are merged over it.
const dropInDir = "config.d"

// withDropIns returns a file and the drop-ins beside it, in the order of
// merging.
func withDropIns(file string) ([]string, error) {
	beside, err := dropIns(filepath.Join(filepath.Dir(file), dropInDir))
	if err != nil {
		return nil, fmt.Errorf("list configuration drop-ins: %w", err)
	}
	return append([]string{file}, beside...), nil
}

// dropIns returns the drop-ins in a directory, by name; there are none if it does not
// exist. Names that begin with a dot are not drop-ins: editors give them to locks
// (Emacs: ".#50-memory.toml", a link to nothing) and to unsaved text.
func dropIns(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var files []string
	for _, entry := range entries {
		name := entry.Name()
		if !entry.IsDir() && filepath.Ext(name) == ".toml" && !strings.HasPrefix(name, ".") {
			files = append(files, filepath.Join(dir, name))
		}
	}
	return files, nil
}

// overlooked returns the directories with drop-ins that a reader of the documentation
// could take for those of file, which is find's result: beside a place that comes
// before it and has no file, or beside a link to it.
func (h host) overlooked(explicit, file string) []string {
	places := h.files
	if named := h.named(explicit); named != "" {
		places = []string{named}
	}
	var dirs []string
	for _, place := range places {
		dir := filepath.Join(filepath.Dir(place), dropInDir)
		if found, err := dropIns(dir); err == nil && len(found) > 0 && !sameDir(place, file) {
			dirs = append(dirs, dir)
		}
		if target, err := filepath.EvalSymlinks(place); err == nil && target == file {
			break
		}
	}
	return dirs
}

// sameDir reports whether two files are in the same directory.
func sameDir(one, other string) bool {
	first, err := os.Stat(filepath.Dir(one))
	if err != nil || other == "" {
		return false
	}
	second, err := os.Stat(filepath.Dir(other))
	return err == nil && os.SameFile(first, second)
}
