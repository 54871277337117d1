package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

const (
	// deleteTime is how long a delete waits for processes to end, and lastWait the
	// least that it waits for those which it has just killed. containerd gives a
	// delete 5 s, and else reports that the container ended with 255.
	deleteTime, lastWait = 4 * time.Second, 500 * time.Millisecond
	// patientTime is deleteTime for an engine that has the time.
	patientTime = 10 * time.Second
	// endGrace is how long a daemon may take to end by itself, and endRound the
	// time between two checks whether it only waits for its loggers.
	endGrace, endRound = 3 * time.Second, 20 * time.Millisecond
)

// Delete cleans up after a shim that died or never started, and answers with the
// exit of its container, as recorded or assumed. A failed removal is an error only
// if the engine can call again; otherwise Delete prints it, and a later start tries
// again. It may be called any number of times.
func Delete(p *Params, platform virtcontainers.Platform, stdout io.Writer) error {
	sandboxID := p.ID
	b, loadErr := bundle.Load(p.Bundle)
	if loadErr == nil {
		if place, err := bundle.Place(p.ID, b.Spec.Annotations); err == nil {
			sandboxID = place.SandboxID
		}
	}
	pid, err := cleanUp(p, platform, sandboxID)
	if err != nil {
		err = fmt.Errorf("clean up after container %s: %w", p.ID, err)
		if engine.For(p.Namespace, p.GRPCAddress).PatientDelete {
			return err // it calls again
		}
		// Without an answer containerd publishes 255 and keeps the bundle, so that
		// the id cannot be used again. It logs what is printed here.
		fmt.Fprintln(os.Stderr, err)
	}
	if loadErr == nil {
		if err := virtcontainers.RunPoststop(context.Background(), b, p.ID); err != nil {
			fmt.Fprintln(os.Stderr, "a hook failed after the container's end:", err) // the engine logs it
		}
	}
	return answer(p, pid, stdout)
}

// answer writes the container's exit.
func answer(p *Params, pid int, stdout io.Writer) error {
	exit, err := bundle.LoadExit(p.Bundle)
	if err != nil { // none was saved: it ran when its shim died, or never started
		exit = bundle.Exit{Status: virtcontainers.ExitKilled, At: time.Now()}
	}
	data, err := proto.Marshal(&task.DeleteResponse{
		Pid: uint32(pid), ExitStatus: exit.Status, ExitedAt: timestamppb.New(exit.At),
	})
	if err != nil {
		return fmt.Errorf("encode exit: %w", err)
	}
	if _, err := stdout.Write(data); err != nil {
		return fmt.Errorf("answer with exit: %w", err)
	}
	return nil
}

// cleanUp removes the container's leftovers, and the whole pod's when it is the
// sandbox's container or the pod's shim is dead. It returns the pid that the
// container had.
func cleanUp(p *Params, platform virtcontainers.Platform, sandboxID string) (int, error) {
	whole, end := "", time.Now().Add(deleteTime)
	if engine.For(p.Namespace, p.GRPCAddress).PatientDelete {
		end = time.Now().Add(patientTime)
	}
	own, pid, err := endShim(p, sandboxID, end)
	if own {
		whole = sandboxID
	}
	errs := []error{err}
	// A failure does not stop the removal of the rest: an engine may not call again.
	var rec persist.Record
	owner, err := recordOwner(p, platform, sandboxID)
	if err == nil {
		platform.Owner = owner
		rec, err = virtcontainers.Recover(platform, sandboxID, whole, max(time.Until(end), lastWait))
	}
	errs = append(errs, err, virtcontainers.UnmountBundle(p.Bundle))
	if whole != "" {
		// Its shim may have been a spare that no pod had. The next spare or
		// delete tries again.
		_ = virtcontainers.PoolDir(platform.RunDir).Tidy()
		errs = append(errs, removeOwnSocket(p))
	}
	return cmp.Or(rec.StandIns[p.ID].PID, pid), errors.Join(errs...)
}

// endShim ends the container in a shim that is still alive. An engine that calls
// delete abandons the container and removes its bundle, for example after a restart
// during which the shim did not answer. The sandbox's own container ends with its
// shim: one that has no container left ends by itself, any other is killed. whole then
// reports that the pod must be removed. Any other container is killed by its shim, if that
// answers, and pid is the container's. A shim that has deleted the sandbox's container and
// serves others is not touched: it reports their exits.
func endShim(p *Params, sandboxID string, end time.Time) (whole bool, pid int, err error) {
	shim := findShim(p, sandboxID)
	defer shim.close()
	switch {
	case sandboxID == p.ID && !shim.servesOnlyOthers(p.ID):
		shim.dismiss(p.ID, end)
		return true, 0, killDaemon(p, end)
	case sandboxID != p.ID && shim.serves(p.ID):
		pid, err = shim.end(p.ID, end)
	}
	return false, pid, err
}

// removeOwnSocket removes the socket of the daemon that start made. A bundle
// without a daemon's pid uses the daemon of another bundle, which may still run.
func removeOwnSocket(p *Params) error {
	if _, err := os.Stat(filepath.Join(p.Bundle, bundle.PIDFile)); err != nil {
		return nil //nolint:nilerr // start did not get that far
	}
	address, err := bundle.Address(p.Bundle)
	if err != nil {
		return nil //nolint:nilerr // start did not get that far
	}
	return removeSocket(address)
}

// killDaemon kills the daemon whose pid start wrote down, if it still runs: an
// engine that could not connect to it leaves it behind. If the pid is another
// process's by now, that process is left alone.
func killDaemon(p *Params, end time.Time) error {
	data, err := os.ReadFile(filepath.Join(p.Bundle, bundle.PIDFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil || !isDaemon(pid, p) {
		return nil //nolint:nilerr // not the pid of a daemon
	}
	daemon, err := persist.Identify(pid)
	if err != nil || !isDaemon(pid, p) {
		return nil //nolint:nilerr // it has just ended
	}
	// It may still have events to forward: the engine calls delete as soon as its
	// connection is closed.
	if awaitEnding(p, daemon, end) {
		return nil
	}
	return daemon.Kill(max(time.Until(end), lastWait))
}

// awaitEnding waits, at most endGrace and not after end, until a daemon that is ending has
// ended, or has left its bundle (EndLoggers).
func awaitEnding(p *Params, daemon persist.Process, end time.Time) bool {
	for grace := time.Now().Add(endGrace); bundle.ShimIsEnding(p.Bundle) && time.Now().Before(grace) && time.Now().Before(end); {
		if daemon.Await(endRound) == nil {
			return true
		}
		_, err := os.Stat(filepath.Join(p.Bundle, bundle.PIDFile))
		if errors.Is(err, fs.ErrNotExist) && bundle.ShimIsEnding(p.Bundle) {
			return true
		}
	}
	return false
}

// isDaemon reports whether the command line of the process is that of the daemon
// of that container: another engine's container may have the same id.
func isDaemon(pid int, p *Params) bool {
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := strings.Split(string(cmdline), "\x00")
	has := func(name, value string) bool {
		i := slices.Index(args, name)
		return i > 0 && i+1 < len(args) && args[i+1] == value
	}
	return strings.Contains(args[0], "containerd-shim-kata") && has("-id", p.ID) && has("-namespace", p.Namespace)
}
