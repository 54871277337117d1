package soak

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/katabox/katabox/tests/harness"
)

// figures are the resources of one holder, by name.
type figures map[string]int

// The holders that are not processes of the resident pod.
const (
	host       = "host"
	containerd = "containerd"
)

// holders has the figures of each holder at one moment.
type holders map[string]figures

// look reads the figures of the host, of containerd and of the resident pod's
// processes. The host's include everything that runs on it.
func look(resident []harness.Proc) (holders, error) {
	own, err := hostFigures()
	if err != nil {
		return nil, err
	}
	found := holders{host: own}
	if found[containerd], err = processFigures(engine.PID()); err != nil {
		return nil, err
	}
	for _, p := range resident {
		if found[p.Kind()], err = processFigures(p.PID); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// hostFigures counts mounts, cgroups, network namespaces, processes, open files
// and kilobytes of memory.
func hostFigures() (figures, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("count mounts: %w", err)
	}
	cgroups := 0
	err = filepath.WalkDir("/sys/fs/cgroup", func(_ string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			cgroups++
		}
		return nil // a cgroup may be removed during the walk
	})
	if err != nil {
		return nil, fmt.Errorf("count cgroups: %w", err)
	}
	namespaces, processes, err := countNamespaces()
	if err != nil {
		return nil, err
	}
	f := figures{"mounts": bytes.Count(mounts, []byte{'\n'}), "cgroups": cgroups, "netns": namespaces, "processes": processes}
	if err := f.read("/proc/meminfo", map[string]string{"MemAvailable:": "available KiB", "SUnreclaim:": "kernel KiB"}); err != nil {
		return nil, err
	}
	open, err := os.ReadFile("/proc/sys/fs/file-nr")
	if err != nil {
		return nil, fmt.Errorf("count open files: %w", err)
	}
	f["files"], err = strconv.Atoi(strings.Fields(string(open))[0])
	return f, err
}

// countNamespaces counts the network namespaces that processes are in, and the processes.
func countNamespaces() (namespaces, processes int, err error) {
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return 0, 0, fmt.Errorf("list processes: %w", err)
	}
	seen := map[string]struct{}{}
	for _, link := range links {
		if id, err := os.Readlink(link); err == nil { // else the process has ended
			seen[id] = struct{}{}
		}
	}
	return len(seen), len(links), nil
}

// processFigures counts a process's descriptors, threads and kilobytes.
func processFigures(pid int) (figures, error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	open, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		return nil, fmt.Errorf("count descriptors: %w", err)
	}
	f := figures{"files": len(open)}
	return f, f.read(filepath.Join(dir, "status"), map[string]string{"VmRSS:": "memory KiB", "Threads:": "threads"})
}

// read reads numbers from a file of "Key: number" lines.
func (f figures) read(file string, names map[string]string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read figures: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 2 || names[words[0]] == "" {
			continue
		}
		if f[names[words[0]]], err = strconv.Atoi(words[1]); err != nil {
			return fmt.Errorf("%s: %q: %w", file, line, err)
		}
	}
	return nil
}

// rows are the rows of the table, in order.
var rows = []struct{ who, what string }{
	{host, "mounts"},
	{host, "cgroups"},
	{host, "netns"},
	{host, "processes"},
	{host, "files"},
	{host, "kernel KiB"},
	{host, "available KiB"},
	{containerd, "files"},
	{containerd, "threads"},
	{containerd, "memory KiB"},
	{harness.KindShim, "files"},
	{harness.KindShim, "threads"},
	{harness.KindShim, "memory KiB"},
	{harness.KindVMM, "files"},
	{harness.KindVMM, "threads"},
	{harness.KindVMM, "memory KiB"},
}

// table formats the figures before and after.
func table(before, after holders) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(w, "\tbefore\tafter\t\n")
	for _, row := range rows {
		if _, there := before[row.who]; there {
			_, _ = fmt.Fprintf(w, "%s: %s\t%d\t%d\t\n", row.who, row.what, before[row.who][row.what], after[row.who][row.what])
		}
	}
	_ = w.Flush()
	return out.String()
}
