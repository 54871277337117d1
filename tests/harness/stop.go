package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// stopTimeout bounds containerd's stop.
const stopTimeout = 3 * time.Minute

// settleTimeout bounds the end of the last shim on a busy host.
const settleTimeout = 3 * time.Minute

// Stop ends the daemon, removes its directory and checks that the host is as
// it was before Start. What is left is listed in the error and then removed by
// force, so that a failure does not affect the next run.
func (d *Daemon) Stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	var errs []error
	if d.Client != nil {
		errs = append(errs, d.removeContainers(d.Context(ctx)), d.Client.Close(), d.destroyTemplates(ctx))
	}
	if d.child != nil {
		errs = append(errs, d.child.Stop(ctx))
	}
	d.reported = nil // the end is judged as a whole
	errs = append(errs, d.awaitClean(ctx, d.hostLeaks))
	d.force()
	if d.child != nil {
		errs = append(errs, d.checkAccel())
	}
	if err := os.RemoveAll(d.Dir); err != nil {
		errs = append(errs, fmt.Errorf("remove daemon directory: %w", err))
	}
	errs = append(errs, d.unshareTemplates())
	return errors.Join(errs...)
}

// Settled waits until nothing of any pod is left, while the daemon keeps
// running: no process but containerd and the spares of EnvPool, no mount, bundle,
// FIFO, socket, cgroup or runtime file. The error lists what is left after settleTimeout, or earlier if ctx
// ends; later calls do not list it again, so that one test's leak does not fail
// the others. A pod without the accelerator that EnvAccel requires is an error
// too.
func (d *Daemon) Settled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	err := d.awaitClean(ctx, d.podLeaks)
	if err != nil {
		if found, leaks := d.podLeaks(); leaks == nil {
			for _, line := range found {
				d.reported[line] = struct{}{}
			}
		}
	}
	return errors.Join(err, d.checkAccel())
}

// awaitClean calls leaks until it finds none or ctx ends: a shim ends a moment
// after its last answer.
func (d *Daemon) awaitClean(ctx context.Context, leaks func() ([]string, error)) error {
	for {
		found, err := leaks()
		if err != nil || len(found) == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("left behind:\n  %s", strings.Join(found, "\n  "))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// hostLeaks returns what the daemon left: processes and changes of the host.
func (d *Daemon) hostLeaks() ([]string, error) { return d.leaks(d.allProcesses) }

// leaks returns those of the processes that should have ended, and what has
// changed on the host.
func (d *Daemon) leaks(processes func() ([]Proc, error)) ([]string, error) {
	procs, err := processes()
	if err != nil {
		return nil, err
	}
	var found []string
	for _, p := range procs {
		if !d.excused(p.String()) {
			found = append(found, p.String())
		}
	}
	now, err := ReadHostState()
	if err != nil {
		return nil, err
	}
	for _, line := range now.Since(d.before) {
		if concerns(line, d.tag, d.Dir) && !d.excused(line) {
			found = append(found, line)
		}
	}
	cgroups, err := readCgroups(cgroupRoot, d.tag)
	for _, line := range cgroups.Since(nil) {
		if !d.excused(line) {
			found = append(found, line)
		}
	}
	return found, err
}

// podLeaks adds what is in the daemon's directory while it runs. The spares that
// EnvPool asks for are no pod's.
func (d *Daemon) podLeaks() ([]string, error) {
	processes := d.allProcesses
	if d.usesTemplates() {
		processes = d.Processes
	}
	found, err := d.leaks(processes)
	if err != nil {
		return nil, err
	}
	own := HostState{}
	for kind, dir := range map[string]string{"bundle": d.bundleDir(), "fifo": d.fifoDir(), "socket": filepath.Join(d.Dir, "s")} {
		if err := own.addEntries(kind, dir); err != nil {
			return nil, err
		}
	}
	for _, line := range own.Since(nil) {
		if !d.excused(line) {
			found = append(found, line)
		}
	}
	return found, nil
}

// excused reports whether a leak is known: reported before, or not a fault of
// ours. runc's shim leaves its socket when it is killed and its bundle when the
// spec is bad. A containerd that is killed leaves a bundle that it was about to
// remove, under a hidden name (core/runtime/v2/bundle.go, atomicDelete), and
// never looks at it again.
func (d *Daemon) excused(line string) bool {
	if _, reported := d.reported[line]; reported {
		return true
	}
	if name, ok := strings.CutPrefix(line, "bundle "); ok && d.crashed && strings.HasPrefix(filepath.Base(name), ".") {
		return true
	}
	ofRunc := strings.HasPrefix(line, "socket ") || strings.HasPrefix(line, "bundle ")
	return ofRunc && !d.options.Runtime.VM
}

// Processes returns the host processes of the daemon's pods, without the
// daemon, template makers and spares.
func (d *Daemon) Processes() ([]Proc, error) {
	procs, err := d.allProcesses()
	return slices.DeleteFunc(procs, func(p Proc) bool { return p.ofMaker }), err
}

// allProcesses returns those of Processes, template makers and spares.
func (d *Daemon) allProcesses() ([]Proc, error) {
	root := 0
	if d.child != nil {
		root = d.child.PID()
	}
	return owned(envTag+"="+d.tag, root)
}

// force kills the remaining processes and unmounts everything below the
// daemon's directory.
func (d *Daemon) force() {
	if procs, err := d.allProcesses(); err == nil {
		killTree(procs)
	}
	if now, err := ReadHostState(); err == nil && !d.options.Runtime.VM {
		for _, line := range now.Since(d.before) {
			if socket, ok := strings.CutPrefix(line, "socket "); ok && !served(socket) {
				_ = os.Remove(socket)
			}
		}
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(d.Dir))
	if err != nil {
		return
	}
	for i := len(mounts) - 1; i >= 0; i-- {
		_ = unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH)
	}
}
