package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// The names of the files in a container's directory that note the monitors of execs
// begin and end so.
const (
	notePrefix = "exec-"
	noteSuffix = ".pid"
)

// execNote says which process represents an exec on the host: its monitor, or the one
// that makes that.
type execNote struct {
	execID  string
	monitor persist.Process
}

func (r *Runtime) notePath(id, execID string) string {
	return filepath.Join(r.dir(id), notePrefix+execID+noteSuffix)
}

// execStdio is the name of the directory with an exec's FIFOs.
func execStdio(execID string) string { return "io-" + execID }

// noteExec notes the process pid as an exec's monitor, and returns the note's path.
func (r *Runtime) noteExec(id, execID string, pid int) (string, error) {
	p, err := persist.Identify(pid)
	if err != nil {
		return "", err
	}
	data, err := json.Marshal(p)
	if err != nil {
		return "", err
	}
	name := r.notePath(id, execID)
	if err := replaceFile(name, data, 0o600); err != nil {
		return "", fmt.Errorf("note exec: %w", err)
	}
	return name, nil
}

// execNotes returns a container's notes.
func (r *Runtime) execNotes(id string) []execNote {
	names, err := fs.Glob(os.DirFS(r.dir(id)), notePrefix+"*"+noteSuffix)
	if err != nil {
		return nil
	}
	var notes []execNote
	for _, name := range names {
		note := execNote{execID: strings.TrimSuffix(strings.TrimPrefix(name, notePrefix), noteSuffix)}
		data, err := os.ReadFile(filepath.Join(r.dir(id), name))
		if err == nil && json.Unmarshal(data, &note.monitor) == nil {
			notes = append(notes, note)
		}
	}
	return notes
}

// execMonitors returns the monitors of running execs.
func (r *Runtime) execMonitors(id string) []persist.Process {
	var monitors []persist.Process
	for _, note := range r.execNotes(id) {
		if note.monitor.Alive() {
			monitors = append(monitors, note.monitor)
		}
	}
	return monitors
}

// execPids returns the pids of the monitors of running execs.
func (r *Runtime) execPids(id string) []int {
	var pids []int
	for _, p := range r.execMonitors(id) {
		pids = append(pids, p.PID)
	}
	return pids
}

// sweepExecs removes what execs have left whose monitor has ended: their notes, and if it
// was killed, their FIFOs and themselves in the shim. One that still runs is killed. What
// cannot be removed yet, the next exec's sweep removes.
func (r *Runtime) sweepExecs(ctx context.Context, shim *client.Shim, id string) {
	for _, note := range r.execNotes(id) {
		if note.monitor.Alive() {
			continue
		}
		err := forget(ctx, shim, id, note.execID)
		if errdefs.IsFailedPrecondition(err) {
			err = errors.Join(err, killExec(ctx, shim, id, note.execID))
		}
		if err == nil {
			err = os.RemoveAll(filepath.Join(r.dir(id), execStdio(note.execID)))
		}
		if err == nil {
			err = os.Remove(r.notePath(id, note.execID))
		}
		if err != nil {
			log.G(ctx).WithError(err).Debugf("exec %s is not swept", note.execID)
		}
	}
}

func killExec(ctx context.Context, shim *client.Shim, id, execID string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := shim.Kill(ctx, &task.KillRequest{ID: id, ExecID: execID, Signal: uint32(unix.SIGKILL)})
	return err
}
