package installer

import (
	"os"
	"path/filepath"
	"strings"
)

// process is one of the node's: its directory below /proc, and its arguments.
type process struct {
	dir       string
	arguments []string
}

// running returns the node's processes that run a program of that name, wherever it is:
// NixOS has it below /nix/store, and k3s's is k3s's own program called by another name.
// It is errNoProc if the processes cannot be seen.
func (n node) running(name string) ([]process, error) {
	processes, err := n.processes()
	if err != nil {
		return nil, err
	}
	var found []process
	for _, dir := range processes {
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		text, _ := os.ReadFile(filepath.Join(dir, "cmdline")) // empty if it has ended
		arguments := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
		if filepath.Base(strings.TrimSuffix(exe, deletedSuffix)) == name || filepath.Base(arguments[0]) == name {
			found = append(found, process{dir, arguments})
		}
	}
	return found, nil
}

// inContainer reports whether the process is in another mount namespace than the node's
// first: its paths are not the node's.
func (p process) inContainer() bool {
	its, err := os.Readlink(filepath.Join(p.dir, "ns/mnt"))
	if err != nil {
		return false
	}
	first, err := os.Readlink(filepath.Join(filepath.Dir(p.dir), "1/ns/mnt"))
	return err == nil && its != first
}

// isUsers reports whether a user of the node other than root runs the process, under
// whatever name.
func (p process) isUsers() bool {
	uid, _, _ := strings.Cut(statusField(filepath.Join(p.dir, "status"), "Uid"), "\t")
	return uid != "" && uid != "0"
}
