package container

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/system"

	_ "github.com/katabox/katabox/agent/container/inside" // The stage, which waits for none of this package.
)

// stage is libcontainer's view of a container, as its stage for processes needs it.
type stage struct {
	root, id string // of libcontainer's state

	mu  sync.Mutex
	lib *libcontainer.Container // nil until an exec needs it, unless it started the init
}

// stateFile is the file that libcontainer.Load reads, in the container's directory.
const stateFile = "state.json"

// of returns the view of the container whose first process is init. If libcontainer
// has not started that, made is the container as it was made: libcontainer learns
// of the process by a file.
func (s *stage) of(made *libcontainer.Container, init initProcess) (*libcontainer.Container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lib != nil {
		return s.lib, nil
	}
	stat, err := system.Stat(init.pid)
	if err != nil {
		return nil, fmt.Errorf("inspect init: %w", err)
	}
	if !init.isAlive() { // stat may be of another process
		return nil, libcontainer.ErrNotRunning
	}
	config := made.Config()
	config.Hooks = nil // They are not libcontainer's to run any more.
	state := libcontainer.State{BaseState: libcontainer.BaseState{
		ID: s.id, InitProcessPid: init.pid, InitProcessStartTime: stat.StartTime, Created: time.Now(), Config: config,
	}}
	text, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("encode state: %w", err)
	}
	if err := os.WriteFile(filepath.Join(s.root, s.id, stateFile), text, 0o600); err != nil {
		return nil, fmt.Errorf("write state: %w", err)
	}
	if s.lib, err = libcontainer.Load(s.root, s.id); err != nil {
		return nil, fmt.Errorf("load container: %w", err)
	}
	return s.lib, nil
}
