package task

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/virtcontainers"
)

const (
	// waitGrace is how long after an exit an engine's Wait may still come: the
	// exit FIFO is for engines that never call it.
	waitGrace = time.Second
	// waitMemory is how long an answered Wait is remembered: safely longer than
	// waitGrace, even on a host under load.
	waitMemory = 10 * waitGrace
)

// exitFIFOs reports exits to engines that do not Wait: iSulad before v2.1.3 reads
// the status, four bytes in the host's order, from <dir>/<container>/exit_fifo.
// Newer versions write it there themselves when their Wait returns, so an exit
// whose Wait was answered is not written.
type exitFIFOs struct {
	// dir is the engine's $EXIT_FIFO_DIR; empty for engines without it.
	dir string

	mu     sync.Mutex // guards waited
	waited map[exitKey]bool
}

// exitKey identifies one exit: a container may be run again under its id before
// the last exit was reported.
type exitKey struct {
	containerID string
	at          time.Time
}

func newExitFIFOs(dir string) *exitFIFOs {
	return &exitFIFOs{dir: dir, waited: make(map[exitKey]bool)}
}

// noteWait records that the engine has waited for this exit.
func (e *exitFIFOs) noteWait(exit virtcontainers.Exit) {
	if e.dir == "" {
		return
	}
	key := exitKey{exit.ContainerID, exit.At}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.waited[key] {
		return
	}
	e.waited[key] = true
	time.AfterFunc(waitMemory, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.waited, key)
	})
}

// exited reports an exit to the engine unless the engine waits for the container.
// It does not block. It opens the FIFO now: later, another run's FIFO may have
// its name.
func (e *exitFIFOs) exited(exit virtcontainers.Exit, failed func(error)) {
	if e.dir == "" {
		return
	}
	f, err := os.OpenFile(filepath.Join(e.dir, exit.ContainerID, "exit_fifo"), os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		failed(fmt.Errorf("open exit FIFO: %w", err)) // it has no reader
		return
	}
	time.AfterFunc(waitGrace, func() {
		defer f.Close()
		e.mu.Lock()
		waited := e.waited[exitKey{exit.ContainerID, exit.At}]
		e.mu.Unlock()
		if waited {
			return
		}
		if _, err := f.Write(binary.NativeEndian.AppendUint32(nil, exit.Status)); err != nil {
			failed(fmt.Errorf("write exit FIFO: %w", err))
		}
	})
}
