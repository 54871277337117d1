package installer

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// mainFile has the parts of containerd's configuration that the installer reads.
type mainFile struct {
	Version int            `toml:"version"`
	Imports []string       `toml:"imports"`
	Plugins map[string]any `toml:"plugins"`
	// Disabled are plugins that containerd does not load: "cri", which version 1
	// calls it and Docker's package disables, or names like its tables'.
	Disabled []string `toml:"disabled_plugins"`
}

// hasNoKey reports whether a valid file has only comments, if anything.
func hasNoKey(text []byte) bool {
	var keys map[string]any
	return toml.Unmarshal(text, &keys) == nil && len(keys) == 0
}

// handler returns the table of a handler that the file itself defines, or nil.
func (m mainFile) handler(name string) map[string]any {
	for _, plugin := range []string{"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"} {
		if table := handlerOf(m.Plugins, plugin, name); table != nil {
			return table
		}
	}
	return nil
}

// handlerOf returns a handler's table, or nil if there is none.
func handlerOf(plugins map[string]any, plugin, handler string) map[string]any {
	table := plugins
	for _, key := range []string{plugin, "containerd", "runtimes", handler} {
		table, _ = table[key].(map[string]any)
	}
	return table
}

// imports reports whether the file imports another, with the list interpreted as
// containerd does: patterns, relative to the file's directory.
func (m mainFile) imports(name string) bool {
	for _, pattern := range m.Imports {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(containerdConfig), pattern)
		}
		matched, err := filepath.Match(filepath.Clean(pattern), name)
		if err == nil && matched && (strings.Contains(pattern, "*") || pattern == name) {
			return true
		}
	}
	return false
}

// importLine returns the line that imports files, none without any.
func importLine(names []string) string {
	if len(names) == 0 {
		return ""
	}
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", name)
	}
	return "imports = [" + strings.Join(quoted, ", ") + "]\n"
}

// leftovers returns the lines outside the block that name the drop-in or the shim,
// with their numbers. "containerd config migrate" drops comments, so the block's
// markers, and writes out its content with that of imported files.
func leftovers(text []byte) []string {
	var found []string
	inBlock := false
	for i, line := range strings.Split(string(text), "\n") {
		switch {
		case strings.HasPrefix(line, blockBegin):
			inBlock = true
		case strings.HasPrefix(line, blockEnd):
			inBlock = false
		case inBlock || strings.HasPrefix(strings.TrimSpace(line), "#"):
		case strings.Contains(line, filepath.Base(containerdDropIn)) || strings.Contains(line, ShimPath):
			found = append(found, fmt.Sprintf("line %d: %s", i+1, strings.TrimSpace(line)))
		}
	}
	return found
}
