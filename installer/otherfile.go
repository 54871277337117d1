package installer

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// inOtherFile reports whether the containerd that starts the node's pods reads another
// file than the one that the installer changes, and has the handler from there. It is an
// error if it does not have it.
func (c containerd) inOtherFile() (bool, error) {
	others := c.otherFiles()
	if len(others) == 0 || slices.ContainsFunc(others, c.hasHandler) {
		return len(others) > 0, nil
	}
	return false, fmt.Errorf("the node's containerd reads %s and not %s, which the installer changes: configure the handler %s there by hand, with runtime_path = %q, "+
		"and install again", strings.Join(others, ", "), containerdConfig, c.handler, ShimPath)
}

// otherFiles returns the files of the containerds that run, sorted, unless one that
// starts pods reads the installer's. Docker's may run beside it.
func (c containerd) otherFiles() []string {
	processes, _ := c.node.running(c.name()) // without any, the next one reads the file when it starts
	var others []string
	for _, p := range processes {
		file := configOf(p.arguments)
		switch {
		case p.inContainer() || p.isUsers(): // as kind's, and rootless Docker's
		case !c.node.same(file, containerdConfig):
			others = append(others, file)
		case c.serves():
			return nil
		}
	}
	slices.Sort(others)
	return slices.Compact(others)
}

// hasHandler reports whether a file, or one that it imports, has the handler with the
// shim's path.
func (c containerd) hasHandler(file string) bool {
	main := c.node.parsed(file)
	has := func(m mainFile) bool { return m.handler(c.handler)["runtime_path"] == ShimPath }
	return has(main) || slices.ContainsFunc(c.node.imported(file, main.Imports), func(name string) bool { return has(c.node.parsed(name)) })
}

// parsed returns a file of containerd's; without a key if it is not there, or invalid.
func (n node) parsed(file string) mainFile {
	var m mainFile
	text, err := n.read(file)
	if err != nil || toml.Unmarshal(text, &m) != nil {
		return mainFile{}
	}
	return m
}

// imported returns the files that a list of imports names (containerd's
// cmd/containerd/server/config/config.go, resolveImports): paths, relative to the file's
// directory, or patterns.
func (n node) imported(file string, imports []string) []string {
	var found []string
	for _, pattern := range imports {
		if !filepath.IsAbs(pattern) {
			pattern = filepath.Join(filepath.Dir(file), pattern)
		}
		dir, base := filepath.Split(filepath.Clean(pattern))
		names, _ := n.list(dir) // none if it is not there
		for _, name := range names {
			if matched, err := filepath.Match(base, name); err == nil && matched {
				found = append(found, filepath.Join(dir, name))
			}
		}
	}
	return found
}

// configOf returns the configuration file of a containerd with these arguments
// (cmd/containerd/command/main.go: --config, -c). A relative one cannot be found
// without the process's directory, and counts as the default.
func configOf(arguments []string) string {
	for i, argument := range arguments {
		flag, value, joined := strings.Cut(argument, "=")
		if flag != "--config" && flag != "-config" && flag != "-c" && flag != "--c" {
			continue
		}
		if !joined && i+1 < len(arguments) {
			value = arguments[i+1]
		}
		if filepath.IsAbs(value) {
			return value
		}
	}
	return containerdConfig
}

// same reports whether two paths of the node are one file's.
func (n node) same(one, other string) bool {
	first, err := n.path(one)
	if err != nil {
		return false
	}
	second, err := n.path(other)
	return err == nil && first == second
}
