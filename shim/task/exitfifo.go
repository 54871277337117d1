package task

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// waitGrace is how long after an exit an engine's Wait may still come: the
// exit FIFO is for engines that never call it.
const waitGrace = time.Second

// exitFIFOs tells exits to engines that do not Wait: iSulad before v2.1.3
// reads the status, four bytes in the host's order, from
// <dir>/<container>/exit_fifo. Newer ones write it there themselves when
// their Wait returns, so one that waits is not written to.
type exitFIFOs struct {
	// dir is the engine's $EXIT_FIFO_DIR; empty for engines without.
	dir string

	mu     sync.Mutex // guards waited
	waited map[string]bool
}

func newExitFIFOs(dir string) *exitFIFOs {
	return &exitFIFOs{dir: dir, waited: make(map[string]bool)}
}

// noteWait remembers that the engine waits for the container.
func (e *exitFIFOs) noteWait(containerID string) {
	if e.dir == "" {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waited[containerID] = true
}

// exited tells the engine unless it waits for the container. It does not
// block.
func (e *exitFIFOs) exited(containerID string, status uint32, failed func(error)) {
	if e.dir == "" {
		return
	}
	time.AfterFunc(waitGrace, func() {
		e.mu.Lock()
		waited := e.waited[containerID]
		delete(e.waited, containerID)
		e.mu.Unlock()
		if waited {
			return
		}
		if err := writeExit(filepath.Join(e.dir, containerID, "exit_fifo"), status); err != nil {
			failed(err)
		}
	})
}

func writeExit(path string, status uint32) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("open exit FIFO: %w", err) // nobody reads it
	}
	defer f.Close()
	if _, err := f.Write(binary.NativeEndian.AppendUint32(nil, status)); err != nil {
		return fmt.Errorf("write exit FIFO: %w", err)
	}
	return nil
}
