package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxHolders is how many holders an error names.
const maxHolders = 3

// filesIn describes, for an error, which processes have files open below a
// directory and what is mounted there.
func (m *Mounter) filesIn(dir string) string {
	var found []string
	for _, at := range m.mountsBelow(dir) {
		found = append(found, at+" is mounted on it")
	}
	for _, pid := range m.processes() {
		for _, link := range []string{"root", "cwd", "exe", "fd/*", "map_files/*"} {
			if file, ok := m.linkBelow(pid, link, dir); ok {
				found = append(found, fmt.Sprintf("%s has %s", m.processName(pid), file))
				break
			}
		}
	}
	return holderWords(found)
}

// mountsOf describes, for an error, which processes have a disk mounted: one
// for each mount namespace.
func (m *Mounter) mountsOf(disk Disk) string {
	var found []string
	seen := map[string]bool{}
	for _, pid := range m.processes() {
		ns := m.mountNamespace(pid)
		if seen[ns] {
			continue
		}
		seen[ns] = true
		if at, ok := m.mountedAt(pid, disk); ok {
			found = append(found, fmt.Sprintf("%s has it on %s", m.processName(pid), at))
		}
	}
	return holderWords(found)
}

func holderWords(found []string) string {
	switch {
	case len(found) == 0:
		return "/proc shows no process that uses it"
	case len(found) > maxHolders:
		return strings.Join(found[:maxHolders], ", ") + fmt.Sprintf(" and %d more", len(found)-maxHolders)
	}
	return strings.Join(found, ", ")
}

// processes lists all PIDs; a process may be gone when it is inspected.
func (m *Mounter) processes() (pids []string) {
	entries, err := os.ReadDir(m.proc)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, e.Name())
		}
	}
	return pids
}

// linkBelow finds one of a process's links in /proc that leads into dir.
func (m *Mounter) linkBelow(pid, pattern, dir string) (string, bool) {
	links, err := filepath.Glob(filepath.Join(m.proc, pid, pattern))
	if err != nil {
		return "", false
	}
	for _, link := range links {
		file, err := os.Readlink(link)
		if err == nil && (file == dir || strings.HasPrefix(file, dir+"/")) {
			return file, true
		}
	}
	return "", false
}

// processName describes a process.
func (m *Mounter) processName(pid string) string {
	comm, err := os.ReadFile(filepath.Join(m.proc, pid, "comm"))
	if err != nil {
		return "process " + pid
	}
	return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(comm)))
}

func (m *Mounter) mountNamespace(pid string) string {
	ns, err := os.Readlink(filepath.Join(m.proc, pid, "ns", "mnt"))
	if err != nil {
		return ""
	}
	return ns
}

// mountsBelow lists the agent's mounts below a directory.
func (m *Mounter) mountsBelow(dir string) (targets []string) {
	for _, fields := range m.mountInfo("self") {
		if strings.HasPrefix(fields[4], dir+"/") {
			targets = append(targets, fields[4])
		}
	}
	return targets
}

// mountedAt finds a mount of a disk in a process's namespace.
func (m *Mounter) mountedAt(pid string, disk Disk) (string, bool) {
	number := fmt.Sprintf("%d:%d", disk.Major, disk.Minor)
	for _, fields := range m.mountInfo(pid) {
		if fields[2] == number {
			return fields[4], true
		}
	}
	return "", false
}

// mountInfo is readMountInfo for processes that may be gone.
func (m *Mounter) mountInfo(pid string) [][]string {
	lines, err := m.readMountInfo(pid)
	if err != nil {
		return nil
	}
	return lines
}

// readMountInfo reads the lines of /proc/PID/mountinfo as fields (proc(5)):
// the third is the device's number, the fifth the mount point.
func (m *Mounter) readMountInfo(pid string) (lines [][]string, err error) {
	text, err := os.ReadFile(filepath.Join(m.proc, pid, "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 5 {
			lines = append(lines, fields)
		}
	}
	return lines, nil
}

// unescape undoes the kernel's escaping of names in mountinfo (fs/namespace.c,
// mangle): blanks and backslashes become a backslash and three octal digits.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#").Replace
