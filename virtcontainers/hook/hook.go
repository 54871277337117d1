// Package hook runs OCI hooks on the host, in the namespaces of the shim: the
// kinds that the runtime specification places in the runtime's namespace
// (config.md, POSIX-platform Hooks). For the guest's own hooks see
// agent/container.
package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/child"
)

// The kinds of hooks that run here, by their keys in the spec.
const (
	Prestart      = "prestart"
	CreateRuntime = "createRuntime"
	Poststart     = "poststart"
	Poststop      = "poststop"
)

// Of lists a spec's hooks of a kind, in their order.
func Of(spec *specs.Spec, kind string) []specs.Hook {
	if spec.Hooks == nil {
		return nil
	}
	return map[string][]specs.Hook{
		Prestart:      spec.Hooks.Prestart, //nolint:staticcheck // Docker before 28 makes its network in it
		CreateRuntime: spec.Hooks.CreateRuntime,
		Poststart:     spec.Hooks.Poststart,
		Poststop:      spec.Hooks.Poststop,
	}[kind]
}

// Any reports whether a spec has a hook.
func Any(spec *specs.Spec) bool {
	for _, kind := range []string{Prestart, CreateRuntime, Poststart, Poststop} {
		if len(Of(spec, kind)) > 0 {
			return true
		}
	}
	return false
}

// Check fails with errdefs.ErrInvalidArgument for hooks that cannot be run, and
// with errdefs.ErrNotImplemented for those that would have to run in the
// container's own namespaces, which are in the guest.
func Check(spec *specs.Spec) error {
	if spec.Hooks == nil {
		return nil
	}
	for kind, list := range map[string][]specs.Hook{"createContainer": spec.Hooks.CreateContainer, "startContainer": spec.Hooks.StartContainer} {
		if len(list) > 0 {
			return fmt.Errorf("hooks.%s %s: the container's namespaces are in the virtual machine, where a program of the host cannot run: want prestart, createRuntime, poststart or poststop: %w",
				kind, list[0].Path, errdefs.ErrNotImplemented)
		}
	}
	for _, kind := range []string{Prestart, CreateRuntime, Poststart, Poststop} {
		for i, h := range Of(spec, kind) {
			if !filepath.IsAbs(h.Path) {
				return fmt.Errorf("hooks.%s[%d].path is %q, want an absolute path: %w", kind, i, h.Path, errdefs.ErrInvalidArgument)
			}
			if h.Timeout != nil && *h.Timeout <= 0 {
				return fmt.Errorf("hooks.%s[%d].timeout is %d, want more than 0 seconds: %w", kind, i, *h.Timeout, errdefs.ErrInvalidArgument)
			}
		}
	}
	return nil
}

// Run runs the hooks of a kind one after the other, with state on their
// standard input and its bundle as working directory. It stops at the first
// hook that fails or exceeds its timeout or ctx. The error names the hook and
// has the end of its output.
func Run(ctx context.Context, kind string, hooks []specs.Hook, state specs.State) error {
	input, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode state for hooks: %w", err)
	}
	for i, h := range hooks {
		if err := run(ctx, h, input, state.Bundle); err != nil {
			return fmt.Errorf("run hooks.%s[%d] %s: %w", kind, i, h.Path, err)
		}
	}
	return nil
}

// RunAll is like Run, but runs the remaining hooks after a failure, and a hook without
// a timeout has the fallback. Each hook's time begins with its start.
func RunAll(ctx context.Context, fallback time.Duration, kind string, hooks []specs.Hook, state specs.State) error {
	input, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode state for hooks: %w", err)
	}
	var errs []error
	for i, h := range hooks {
		if err := runWithin(ctx, fallback, h, input, state.Bundle); err != nil {
			errs = append(errs, fmt.Errorf("run hooks.%s[%d] %s: %w", kind, i, h.Path, err))
		}
	}
	return errors.Join(errs...)
}

// runWithin runs a hook, which has the fallback if it names no timeout.
func runWithin(ctx context.Context, fallback time.Duration, h specs.Hook, input []byte, dir string) error {
	if h.Timeout == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, fallback, fmt.Errorf("it names no timeout, and had %v", fallback))
		defer cancel()
	}
	return run(ctx, h, input, dir)
}

const (
	// outputTail is how much of a hook's output is kept, in bytes.
	outputTail = 4 << 10
	// outputWait bounds the wait for the output of a hook that has ended: a
	// process that it left behind may hold the pipe open.
	outputWait = time.Second
)

func run(ctx context.Context, h specs.Hook, input []byte, dir string) error {
	if h.Timeout != nil {
		timeout := time.Duration(*h.Timeout) * time.Second
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("its timeout of %v is over", timeout))
		defer cancel()
	}
	output := child.NewTail(outputTail)
	cmd := exec.CommandContext(ctx, h.Path)
	if len(h.Args) > 0 {
		cmd.Args = h.Args // with argv[0]
	}
	cmd.Env, cmd.Dir = h.Env, dir // no environment: the shim's, as with runc
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), output, output
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = outputWait
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		return nil
	}
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", err, context.Cause(ctx))
	}
	if said := strings.TrimSpace(output.String()); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return err
}
