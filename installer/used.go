package installer

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// errNoProc means that the node's processes cannot be seen.
var errNoProc = errors.New("the node's /proc is not below its root: it is unknown which versions are in use")

// deletedSuffix follows the path of a removed program in /proc/PID/exe.
const deletedSuffix = " (deleted)"

// inVersions returns a pattern that finds the version in a path or a command line.
// It matches both names of the directory of versions if they differ: Home may be a
// symbolic link, and the kernel names the target as a program's path.
func (n node) inVersions() (*regexp.Regexp, error) {
	path, err := n.path(versionsDir)
	if err != nil {
		return nil, err
	}
	target, err := filepath.Rel(n.root, path)
	if err != nil {
		return nil, err
	}
	return regexp.Compile("(?:" + versionsDir + "|" + regexp.QuoteMeta("/"+target) + `)/([^/\x00]+)/`)
}

// used returns for each version the processes that run its programs, as shims do,
// or name its files, as QEMU outside a jail does. kata-runtime itself does not
// count: each of its pods has a shim. A removed version has the name that it was
// given for that, ".old".
func (n node) used() (map[string][]int, error) {
	processes, err := n.processes()
	if err != nil {
		return nil, err
	}
	inVersions, err := n.inVersions()
	if err != nil {
		return nil, err
	}
	used := map[string][]int{}
	for pid, dir := range processes {
		for version := range versionsOf(dir, inVersions) {
			used[version] = append(used[version], pid)
		}
	}
	return used, nil
}

// processes returns the directories of the node's processes below /proc, by pid;
// errNoProc if they cannot be seen.
func (n node) processes() (map[int]string, error) {
	proc, err := n.path("/proc")
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(proc)
	if err != nil || len(entries) == 0 {
		return nil, errNoProc
	}
	dirs := map[int]string{}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			dirs[pid] = filepath.Join(proc, e.Name())
		}
	}
	return dirs, nil
}

// inUse returns the versions that processes use, or all versions if the processes
// cannot be seen.
func (n node) inUse() (map[string]bool, error) {
	keep := map[string]bool{}
	used, err := n.used()
	if err == nil {
		for version := range used {
			keep[version] = !strings.HasPrefix(version, ".") // a removed version
		}
		return keep, nil
	}
	names, err := n.versions()
	for _, name := range names {
		keep[name] = !strings.HasPrefix(name, ".") // an incomplete version, or one being removed
	}
	return keep, err
}

// versionsOf returns the versions that a process uses; none if it has ended.
func versionsOf(dir string, inVersions *regexp.Regexp) map[string]bool {
	program, _ := os.Readlink(filepath.Join(dir, "exe"))
	arguments, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	found := map[string]bool{}
	if filepath.Base(strings.TrimSuffix(program, deletedSuffix)) == toolName {
		return found
	}
	for _, text := range []string{program, string(arguments)} {
		for _, match := range inVersions.FindAllStringSubmatch(text, -1) {
			found[match[1]] = true
		}
	}
	return found
}

// refuseUsed returns an error if pods of any version run. Processes of spares, and
// their children, do not count.
func (n node) refuseUsed(spares []int) error {
	used, err := n.used()
	if err != nil {
		return fmt.Errorf("%w: mount the node's root with what is mounted in it, or uninstall with --force", err)
	}
	pods := 0
	for _, pids := range used {
		for _, pid := range pids {
			if !slices.Contains(spares, pid) && !slices.Contains(spares, n.parent(pid)) {
				pods++
			}
		}
	}
	if pods == 0 {
		return nil
	}
	return fmt.Errorf("pods run on the node (%d processes use %s): remove them first, and spares by \"kata-runtime factory destroy\", or uninstall with --force", pods, Home)
}

// parent returns the parent of a process of the node, or 0 if it has ended.
func (n node) parent(pid int) int {
	path, err := n.path("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	parent, _ := strconv.Atoi(statusField(path, "PPid"))
	return parent
}

// statusField returns a field of a process's status (proc_pid_status(5)), or "" if there
// is none.
func statusField(path, name string) string {
	text, _ := os.ReadFile(path)
	_, after, _ := strings.Cut(string(text), "\n"+name+":")
	line, _, _ := strings.Cut(after, "\n")
	return strings.TrimSpace(line)
}
