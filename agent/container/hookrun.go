package container

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/log"
	"github.com/opencontainers/runc/libcontainer/configs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/command"
)

const (
	// hookTimeout bounds one hook. OCI has a timeout in each hook's entry; these
	// hooks have no entries.
	hookTimeout = 10 * time.Second
	// hookDrain is how long processes that a hook left running may hold its stderr.
	hookDrain = time.Second
	// hookWords is how many of the last bytes of a hook's stderr are reported.
	hookWords = 2 << 10
	// hookPath is the search path of hooks.
	hookPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// hookRun runs the hooks of one container; nil runs none.
//
//	create: prestart, in the namespaces of the agent, when the container's
//	  mounts are made and its root is not yet the container's
//	start: poststart
//	destroy, or a create whose process could not be started: poststop
type hookRun struct {
	hooks    Hooks
	children command.Children
	state    specs.State
	timeout  time.Duration // of one hook
}

// newHookRun writes the container's spec where hooks expect it: config.json in
// the bundle. annotations are those that adjust removes.
func (r *Runtime) newHookRun(id string, spec *specs.Spec, annotations map[string]string) (*hookRun, error) {
	if len(r.hooks) == 0 {
		return nil, nil //nolint:nilnil // none is not an error
	}
	bundle := filepath.Join(filepath.Dir(r.StateDir), "bundles", id)
	config, err := json.Marshal(spec)
	if err == nil {
		err = os.MkdirAll(bundle, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("write bundle of container %s: %w", id, errors.Join(err, os.RemoveAll(bundle)))
	}
	state := specs.State{Version: specs.Version, ID: id, Bundle: bundle, Annotations: annotations}
	return &hookRun{hooks: r.hooks, children: r.Children, state: state, timeout: hookTimeout}, nil
}

// forLibcontainer returns the prestart hooks for libcontainer to run: only
// libcontainer knows when the mounts are made.
func (h *hookRun) forLibcontainer() configs.Hooks {
	if h == nil || len(h.hooks[prestart]) == 0 {
		return nil
	}
	var list configs.HookList
	for _, hook := range h.hooks[prestart] {
		list = append(list, configs.NewFunctionHook(func(s *specs.State) error {
			return h.run(hook, prestart, specs.StateCreating, s.Pid)
		}))
	}
	return configs.Hooks{configs.Prestart: list}
}

// prestart runs the prestart hooks until one fails, with the words of libcontainer's.
func (h *hookRun) prestart(pid int) error {
	if h == nil {
		return nil
	}
	for i, hook := range h.hooks[prestart] {
		if err := h.run(hook, prestart, specs.StateCreating, pid); err != nil {
			return fmt.Errorf("error running %s hook #%d: %w", prestart, i, err)
		}
	}
	return nil
}

// poststart runs the poststart hooks. A failure is logged and changes nothing else.
func (h *hookRun) poststart(pid int) { h.runAll(poststart, specs.StateRunning, pid) }

// poststop runs the poststop hooks in the same way and removes the bundle.
func (h *hookRun) poststop() {
	h.runAll(poststop, specs.StateStopped, 0)
	h.forget()
}

// forget removes the bundle.
func (h *hookRun) forget() {
	if h == nil {
		return
	}
	if err := os.RemoveAll(h.state.Bundle); err != nil {
		log.L.WithField("container", h.state.ID).WithError(err).Warn("cannot remove the bundle")
	}
}

func (h *hookRun) runAll(kind string, status specs.ContainerState, pid int) {
	if h == nil {
		return
	}
	for _, hook := range h.hooks[kind] {
		if err := h.run(hook, kind, status, pid); err != nil {
			log.L.WithField("container", h.state.ID).WithError(err).Warn("a hook failed")
		}
	}
}

// run runs one hook, with the container's state on its stdin and the kind as
// its argument, as Kata's agent does. It blocks until the hook has exited, or
// its process group has been killed.
func (h *hookRun) run(hook, kind string, status specs.ContainerState, pid int) error {
	state := h.state
	state.Status, state.Pid = status, pid
	stdin, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode state of container %s: %w", state.ID, err)
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), h.timeout, fmt.Errorf("it did not end within %v", h.timeout))
	defer cancel()
	stderr := &tail{limit: hookWords}
	cmd := exec.CommandContext(ctx, hook, kind)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stderr = "/", []string{hookPath}, bytes.NewReader(stdin), stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = hookDrain
	err = h.wait(cmd)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return fmt.Errorf("%s hook %s: %w%s", kind, hook, err, stderr)
	}
	return nil
}

// wait runs a command that the reaper spares.
func (h *hookRun) wait(cmd *exec.Cmd) error {
	if err := command.Start(cmd, h.children); err != nil {
		return err
	}
	err := command.Wait(cmd, h.children)
	if errors.Is(err, exec.ErrWaitDelay) {
		return nil // It has ended well, and left a process behind.
	}
	return err
}

// tail keeps the last bytes that were written to it.
type tail struct {
	limit int
	buf   []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p[max(0, len(p)-t.limit):]...)
	t.buf = t.buf[max(0, len(t.buf)-t.limit):]
	return len(p), nil
}

// String is what is kept as the end of an error's text.
func (t *tail) String() string {
	if text := strings.TrimSpace(strings.ToValidUTF8(string(t.buf), "?")); text != "" {
		return ": " + text
	}
	return ""
}
