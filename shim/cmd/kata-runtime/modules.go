package main

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// modulesDir has a directory for each installed kernel. NixOS and Guix keep their
// modules elsewhere, and do not have it.
const modulesDir = "/lib/modules"

// maxModuleList bounds how much of a list of modules is read, in bytes: a
// distribution's has about 1 MiB.
const maxModuleList = 16 << 20

// noModules returns which of these modules the running kernel could not load. It is
// an error if that is unknown.
func (h host) noModules(names []string) ([]string, error) {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		_, err := h.stat("/sys/module/" + name)
		return err == nil
	})
	if len(names) == 0 {
		return nil, nil
	}
	if _, err := h.stat(modulesDir); err != nil {
		return nil, err
	}
	installed := map[string]bool{}
	for _, list := range []string{"modules.dep", "modules.builtin"} { // kmod, modules.dep(5)
		text, err := h.readAll(path.Join(modulesDir, h.release, list), maxModuleList)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for line := range strings.Lines(string(text)) {
			file, _, _ := strings.Cut(strings.TrimSpace(line), ":")
			installed[moduleOf(file)] = true
		}
	}
	return slices.DeleteFunc(names, func(name string) bool { return installed[name] }), nil
}

// moduleOf returns the name of a module's file, or "".
func moduleOf(file string) string {
	name, compression, found := strings.Cut(path.Base(file), ".ko")
	if !found || !slices.Contains([]string{"", ".gz", ".xz", ".zst"}, compression) {
		return ""
	}
	return strings.ReplaceAll(name, "-", "_")
}
