package installer

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// running returns the arguments of the node's processes that run a program of that
// name, wherever it is: NixOS has it below /nix/store, and k3s's is k3s's own program
// called by another name. It is errNoProc if the processes cannot be seen.
func (n node) running(name string) ([][]string, error) {
	processes, err := n.processes()
	if err != nil {
		return nil, err
	}
	var found [][]string
	for _, dir := range processes {
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		text, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // empty if it has ended
		arguments := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if filepath.Base(strings.TrimSuffix(exe, deletedSuffix)) == name || filepath.Base(arguments[0]) == name {
			found = append(found, arguments)
		}
	}
	return found, nil
}

// refuseOtherFile returns an error if containerd runs, but no process of it reads the
// file that the installer changes. Docker's own containerd may run beside the node's.
func (c containerd) refuseOtherFile() error {
	processes, _ := c.node.running(c.name())
	if len(processes) == 0 {
		return nil // none, or none is known: the next one reads the file when it starts
	}
	var others []string
	for _, arguments := range processes {
		file := configOf(arguments)
		if c.node.same(file, containerdConfig) {
			return nil
		}
		others = append(others, file)
	}
	slices.Sort(others)
	return fmt.Errorf("the node's containerd reads %s and not %s, which the installer changes: configure the handler %s there by hand, with runtime_path = %q, "+
		"or start containerd with the other file first", strings.Join(slices.Compact(others), ", "), containerdConfig, c.handler, ShimPath)
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
