package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/shim/engine"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// ShimName is the name of the shim's program.
const ShimName = "containerd-shim-kata-v2"

// programTimeout bounds one call of the shim's program. "delete" may wait 10 s
// for processes that hang.
const programTimeout = 30 * time.Second

// Program says how to call the shim's program for one container.
type Program struct {
	// Path is the program's; FindProgram finds the usual one.
	Path string
	// ID is the container's id.
	ID string
	// Bundle is the absolute path of a directory that the caller owns, with
	// config.json in it. The shim keeps its address, its pid and its log there.
	// Containers of one pod must have their bundles side by side, each named
	// by its id.
	Bundle string
	// Debug makes the shim log more.
	Debug bool
}

// FindProgram returns the path of the shim's program: the one beside this
// program, else the one in PATH.
func FindProgram() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), ShimName)
		if info, err := os.Stat(beside); err == nil && info.Mode().IsRegular() {
			return beside, nil
		}
	}
	path, err := exec.LookPath(ShimName)
	if err != nil {
		return "", fmt.Errorf("find shim beside this program or in PATH: %w", err)
	}
	return path, nil
}

// Start starts the shim, or finds the shim of the container's pod, and connects
// to it. On an error only the bundle is left.
func Start(ctx context.Context, p Program) (*Shim, error) {
	if err := makeLog(p.Bundle); err != nil {
		return nil, err
	}
	if _, err := p.call(ctx, "start"); err != nil {
		err = fmt.Errorf("start shim of container %s: %w", p.ID, err)
		if ctx.Err() != nil { // the program was killed, and may have started the shim
			_, deleteErr := Delete(context.WithoutCancel(ctx), p)
			err = errors.Join(err, deleteErr)
		}
		return nil, err
	}
	s, err := Connect(ctx, p.Bundle)
	if err != nil {
		_, deleteErr := Delete(context.WithoutCancel(ctx), p)
		return nil, errors.Join(err, deleteErr)
	}
	return s, nil
}

// makeLog creates the log file: the shim logs only into one that exists.
func makeLog(dir string) error {
	f, err := os.OpenFile(logFile(dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("make shim's log: %w", err)
	}
	return f.Close()
}

// logFile is the shim's log in a bundle.
func logFile(dir string) string { return filepath.Join(dir, "log") }

// Delete cleans up after a shim that died or cannot be reached, kills it if it
// still runs, and returns how the container ended. It may be called any number of
// times.
func Delete(ctx context.Context, p Program) (bundle.Exit, error) {
	out, err := p.call(ctx, "delete")
	if err != nil {
		return bundle.Exit{}, fmt.Errorf("delete shim of container %s: %w", p.ID, err)
	}
	var resp task.DeleteResponse
	if err := proto.Unmarshal(out, &resp); err != nil {
		return bundle.Exit{}, fmt.Errorf("delete shim of container %s: decode answer: %w", p.ID, err)
	}
	return bundle.Exit{Status: resp.ExitStatus, At: resp.GetExitedAt().AsTime()}, nil
}

// Owner is the owner in the shim's records. Its address distinguishes containers
// with the same id below different roots.
func (p Program) Owner() persist.Owner {
	return persist.Owner{Address: filepath.Dir(p.Bundle), Namespace: engine.CommandLine}
}

// call runs the program and returns its output. Its error contains the program's
// standard error.
func (p Program) call(ctx context.Context, action string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	owner := p.Owner()
	args := []string{"-namespace", owner.Namespace, "-id", p.ID, "-address", owner.Address, "-bundle", p.Bundle}
	if p.Debug {
		args = append(args, "-debug")
	}
	cmd := exec.CommandContext(ctx, p.Path, append(args, action)...)
	cmd.Dir = p.Bundle
	cmd.Env = slices.DeleteFunc(os.Environ(), ofAnotherEngine)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			return nil, fmt.Errorf("%s: %w", said, err)
		}
		return nil, err
	}
	return stdout.Bytes(), nil
}

// ofAnotherEngine reports whether a variable is meant for the shim of another
// engine (Docker's shim passes on containerd's variables), or for a process with
// inherited descriptors.
func ofAnotherEngine(variable string) bool {
	name, _, _ := strings.Cut(variable, "=")
	switch name {
	case "TTRPC_ADDRESS", "GRPC_ADDRESS", "MAX_SHIM_VERSION", "EXIT_FIFO_DIR", "NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID":
		return true
	}
	return false
}
