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

// stage makes libcontainer's views of a container, as its stage for processes needs
// them.
type stage struct {
	root, id string // of libcontainer's state

	mu    sync.Mutex
	known bool // libcontainer's state names the init
}

// stateFile is the file that libcontainer.Load reads, in the container's directory.
const stateFile = "state.json"

// view returns a new view of the container whose first process is init, to start one
// process with: a view starts one process at a time, and one whose start hangs must
// not block the others. If libcontainer has not started init, made is the container as
// it was made.
func (s *stage) view(made *libcontainer.Container, init initProcess) (*libcontainer.Container, error) {
	if err := s.introduce(made, init); err != nil {
		return nil, err
	}
	lib, err := libcontainer.Load(s.root, s.id)
	if err != nil {
		return nil, fmt.Errorf("load container: %w", err)
	}
	return lib, nil
}

// introduce writes libcontainer's state for an init that libcontainer has not started.
func (s *stage) introduce(made *libcontainer.Container, init initProcess) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known {
		return nil
	}
	stat, err := system.Stat(init.pid)
	if err != nil {
		return fmt.Errorf("inspect init: %w", err)
	}
	if !init.isAlive() { // stat may be of another process
		return libcontainer.ErrNotRunning
	}
	config := made.Config()
	config.Hooks = nil // They are not libcontainer's to run any more.
	config.NoNewKeyring = keysAreUsedUp(s.id)
	state := libcontainer.State{BaseState: libcontainer.BaseState{
		ID: s.id, InitProcessPid: init.pid, InitProcessStartTime: stat.StartTime, Created: time.Now(), Config: config,
	}}
	text, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	if err := os.WriteFile(filepath.Join(s.root, s.id, stateFile), text, 0o600); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	s.known = true
	return nil
}
