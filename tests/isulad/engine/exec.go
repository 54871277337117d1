package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"google.golang.org/protobuf/types/known/anypb"
)

// processType is the type of the spec that iSulad sends with Exec.
const processType = "types.containerd.io/opencontainers/runtime-spec/1/Process"

// Exec is one "isula exec".
type Exec struct {
	ID        string
	Console   *Console
	container *Container
}

// StartExec is "isula exec" up to its Wait. The process has no user and no
// capabilities in its spec. iSulad never deletes it.
func (c *Container) StartExec(ctx context.Context, tty bool, stdio Stdio, args ...string) (*Exec, error) {
	fifos, err := openFIFOs(filepath.Join(c.stateDir(), "exec"), stdio)
	if err != nil {
		return nil, err
	}
	defer fifos.unlink()
	console, err := c.attach(fifos)
	if err != nil {
		return nil, err
	}
	x := &Exec{ID: NewID(), Console: console, container: c}
	spec, err := execSpec(tty, args)
	if err != nil {
		return nil, err
	}
	if err := c.taskExec(ctx, x.ID, tty, spec, fifos.paths); err != nil {
		return nil, err
	}
	if _, err := c.taskStart(ctx, x.ID); err != nil {
		return nil, err
	}
	return x, nil
}

func execSpec(tty bool, args []string) (*anypb.Any, error) {
	process := map[string]any{
		"args": args, "cwd": "/",
		"env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"},
	}
	if tty {
		process["terminal"] = true
	}
	data, err := json.Marshal(process)
	if err != nil {
		return nil, fmt.Errorf("encode process: %w", err)
	}
	return &anypb.Any{TypeUrl: processType, Value: data}, nil
}

// Wait returns the exec's exit code; for "isula exec -d" iSulad does not wait.
func (x *Exec) Wait(ctx context.Context) (int32, error) { return x.container.taskWait(ctx, x.ID) }

// Exec runs a command to its end and returns its code and console.
func (c *Container) Exec(ctx context.Context, args ...string) (int32, *Console, error) {
	x, err := c.StartExec(ctx, false, Foreground, args...)
	if err != nil {
		return 0, nil, err
	}
	code, err := x.Wait(ctx)
	if err != nil {
		return 0, nil, err
	}
	return code, x.Console, x.Console.Wait(ctx)
}
