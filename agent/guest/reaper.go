package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"
)

// Reaper reaps the orphans that PID 1 inherits, and spares the children for
// which other code in the agent waits.
//
// A zombie does not show for whom it is: the code that starts a process learns
// its PID late (libcontainer's init is a grandchild made a sibling by
// CLONE_PARENT). So a start is bracketed by Begin and its end function:
//
//	Begin ── start ── end(pid) ── Wait ── Done(pid)
//	   └ young zombies are spared ┘└ pid is spared ┘
//
// A zombie older than every start in progress must be an orphan, so a start
// that hangs does not stop the reaping of older orphans.
type Reaper struct {
	wake chan struct{}

	mu      sync.Mutex
	starts  map[*start]struct{}
	tracked map[int]struct{}
}

// start is one start in progress and when it began, in clock ticks.
type start struct{ began uint64 }

// NewReaper makes a Reaper that tracks nothing. Run does the work.
func NewReaper() *Reaper {
	// The os package checks once whether pidfds work, by waiting for a child,
	// which must not be taken for an orphan.
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		_ = p.Release()
	}
	return &Reaper{
		wake:    make(chan struct{}, 1),
		starts:  map[*start]struct{}{},
		tracked: map[int]struct{}{},
	}
}

// Begin announces the start of a child. end must be called once, with the
// child's PID, or 0 if there is none to wait for.
func (r *Reaper) Begin() (end func(pid int)) {
	s := &start{began: bootTicks()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts[s] = struct{}{}
	return func(pid int) {
		r.mu.Lock()
		delete(r.starts, s)
		if pid > 0 {
			r.tracked[pid] = struct{}{}
		}
		r.mu.Unlock()
		r.kick()
	}
}

// Done is called when the child has been reaped: its PID may be reused.
func (r *Reaper) Done(pid int) {
	r.mu.Lock()
	delete(r.tracked, pid)
	r.mu.Unlock()
	r.kick()
}

// kick makes Run check again: what was spared may be an orphan now.
func (r *Reaper) kick() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// reapPause is the time between two attempts when the agent lacks what it takes.
const reapPause = 100 * time.Millisecond

// Run reaps until ctx is done. When it cannot, for lack of a descriptor or of memory, it
// tries again: the agent's end would be the machine's.
func (r *Reaper) Run(ctx context.Context) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	defer signal.Stop(signals)
	for failed := false; ; {
		var again <-chan time.Time
		err := r.reap()
		if err != nil {
			again = time.After(reapPause)
			if !failed {
				log.G(ctx).WithError(err).Warn("processes that have ended stay until they can be reaped")
			}
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-signals:
		case <-r.wake:
		case <-again:
		}
	}
}

// reap reaps all orphans. A spared zombie hides those behind it from
// waitid(P_ALL), so reap then iterates over all processes.
func (r *Reaper) reap() error {
	for {
		pid, err := peek(unix.P_ALL, 0)
		if errors.Is(err, unix.ECHILD) || (err == nil && pid == 0) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("find zombies: %w", err)
		}
		if !r.reapOne(pid) {
			return r.reapAll()
		}
	}
}

func (r *Reaper) reapAll() error {
	proc, err := os.Open("/proc")
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	defer proc.Close()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if zombie, err := peek(unix.P_PID, pid); err == nil && zombie == pid {
			r.reapOne(pid)
		}
	}
	return nil
}

// reapOne reaps the zombie pid if it is an orphan, and reports whether it was.
func (r *Reaper) reapOne(pid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.tracked[pid]; ok || !r.isOld(pid) {
		return false
	}
	var status unix.WaitStatus
	_, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
	return err == nil
}

// isOld reports whether pid was forked before every start in progress.
func (r *Reaper) isOld(pid int) bool {
	if len(r.starts) == 0 {
		return true
	}
	forked, ok := startTicks(pid)
	if !ok {
		return false
	}
	for s := range r.starts {
		if forked >= s.began {
			return false
		}
	}
	return true
}

// peek looks for a zombie child without reaping it; 0 is none.
func peek(idType, id int) (int, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(idType, id, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return siginfoPid(&info), err
		}
	}
}

// userHZ is the unit of times in /proc/PID/stat: USER_HZ, 100 everywhere.
const userHZ = 100

func bootTicks() uint64 { return uint64(SinceBoot().Seconds() * userHZ) }

// startTicks reads field 22 of /proc/PID/stat (proc(5)): the time of the fork,
// in ticks since boot.
func startTicks(pid int) (uint64, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	return parseStartTicks(stat)
}

// parseStartTicks skips the command name, which may hold spaces and brackets.
func parseStartTicks(stat []byte) (uint64, bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, false
	}
	fields := bytes.Fields(stat[i+1:])
	const startTime = 22 - 3 // the first field after the name is the third
	if len(fields) <= startTime {
		return 0, false
	}
	ticks, err := strconv.ParseUint(string(fields[startTime]), 10, 64)
	return ticks, err == nil
}
