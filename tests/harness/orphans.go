package harness

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of every descendant whose own
// parent died (prctl(2), PR_SET_CHILD_SUBREAPER), so that a leak check finds
// it. Adopted children must also be reaped: a container's init does not end
// before every process of its PID namespace is reaped (pid_namespaces(7)), and
// an exec of a killed shim is now our child.
var adoptOrphans = sync.OnceValue(func() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	died := make(chan os.Signal, 1)
	signal.Notify(died, syscall.SIGCHLD)
	go func() { // as long as the process: orphans may come at any time
		for range died {
			reapOrphans()
		}
	}()
	return nil
})

// own are the children outside the process group for which other code waits.
var own struct {
	mu   sync.Mutex
	pids map[int]bool
}

// StartOwn starts a command that gets its own session or process group. Without
// it, such a child could be reaped as an orphan, and its exit code lost. The
// caller must call wait, which is cmd.Wait.
func StartOwn(cmd *exec.Cmd) (wait func() error, err error) {
	own.mu.Lock() // it may have ended before its number is known
	defer own.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	if own.pids == nil {
		own.pids = map[int]bool{}
	}
	own.pids[pid] = true
	return func() error {
		err := cmd.Wait()
		own.mu.Lock()
		defer own.mu.Unlock()
		delete(own.pids, pid)
		return err
	}, nil
}

// reapOrphans reaps the adopted children that ended. It leaves the children that
// this process started itself to the code that waits for them: they are in its
// process group, or of StartOwn, and each containerd is known by its name.
func reapOrphans() {
	procs, err := tree("")
	if err != nil {
		return // tried again at the next death
	}
	self, group := os.Getpid(), syscall.Getpgrp()
	own.mu.Lock()
	defer own.mu.Unlock()
	for _, p := range procs {
		if p.PPID == self && p.State == 'Z' && p.group != group && p.Comm != "containerd" && !own.pids[p.PID] {
			_, _ = unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
		}
	}
}
