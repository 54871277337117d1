package installer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// unitDirs are the directories with a node's service units
// (systemd.unit(5), "Unit File Load Path").
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// present reports whether the node has an engine: its program or its service. A
// directory with its configuration says nothing: Debian keeps that of a removed
// package, and masks the service by a link to /dev/null.
func (n node) present(engine string) bool {
	if n.program(engine) != "" {
		return true
	}
	for _, dir := range unitDirs {
		file, err := n.path(filepath.Join(dir, engine+".service"))
		if err != nil {
			continue
		}
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return true
		}
	}
	return false
}

// nothingToRestart reports whether the node no longer has an engine, or has only
// its program: no service, and no process that was started by other means. An
// engine that the options name is taken to be there.
func (o *Options) nothingToRestart(ctx context.Context, engine string) bool {
	n := o.node()
	if o.Engine == engine {
		return false
	}
	if !n.present(engine) {
		return true
	}
	if !n.exists("/run/systemd/system") || n.runs(engine) {
		return false
	}
	out, err := o.run(ctx, "systemctl", "show", "--property=LoadState", engine+".service")
	state := strings.TrimPrefix(strings.TrimSpace(string(out)), "LoadState=")
	return err == nil && (state == "not-found" || state == "masked")
}

// runs reports whether a process runs a program of the node's, or may do so because
// the node's processes cannot be seen.
func (n node) runs(name string) bool {
	path, err := n.path(n.program(name))
	if err != nil {
		return true
	}
	program, err := filepath.Rel(n.root, path)
	if err != nil {
		return true
	}
	processes, err := n.processes()
	if err != nil {
		return true
	}
	for _, dir := range processes {
		exe, err := os.Readlink(filepath.Join(dir, "exe"))
		if err == nil && strings.TrimSuffix(exe, deletedSuffix) == "/"+program {
			return true
		}
	}
	return false
}
