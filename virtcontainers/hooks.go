package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/hook"
)

// netnsAnnotation holds the path of the pod's network namespace for nerdctl's
// hooks (nerdctl, pkg/ocihook, NetworkNamespace).
const netnsAnnotation = "nerdctl/network-namespace"

// poststopWait bounds each poststop hook that names no timeout.
const poststopWait = 30 * time.Second

// hookState returns the container's state as hooks get it.
func (c *Container) hookState(status specs.ContainerState) specs.State {
	state := stateOf(c.Bundle, c.ID, status)
	state.Pid = c.PID()
	if state.Annotations[netnsAnnotation] == "" && status != specs.StateStopped {
		netns := c.sandbox.network.EngineNamespace()
		if netns == "" {
			netns = fmt.Sprintf("/proc/%d/ns/net", c.PID())
		}
		state.Annotations[netnsAnnotation] = netns
	}
	return state
}

func stateOf(b *bundle.Bundle, id string, status specs.ContainerState) specs.State {
	annotations := map[string]string{}
	maps.Copy(annotations, b.Spec.Annotations)
	return specs.State{Version: specs.Version, ID: id, Status: status, Bundle: b.EngineDir(), Annotations: annotations}
}

// runCreateHooks runs the hooks that are due when the container's environment
// exists but its process does not run yet. Engines make the pod's network in
// them, and the guest gets that network before Create returns.
func (c *Container) runCreateHooks(ctx context.Context) error {
	spec := c.Bundle.Spec
	if !hook.Any(spec) {
		return nil
	}
	if err := bundle.OwePoststop(c.Bundle.Dir); err != nil {
		return err
	}
	state, began := c.hookState(specs.StateCreating), time.Now()
	var ran bool
	for _, kind := range []string{hook.Prestart, hook.CreateRuntime} {
		list := hook.Of(spec, kind)
		if err := hook.Run(ctx, kind, list, state); err != nil {
			return err
		}
		ran = ran || len(list) > 0
	}
	if !ran {
		return nil
	}
	if err := c.sandbox.network.Refresh(ctx, began); err != nil {
		return fmt.Errorf("give the guest the network that hooks have made: %w", err)
	}
	return nil
}

// runPoststart runs the hooks that are due once the container's process runs.
// On a failure the container is killed (runtime.md, Lifecycle, step 9).
func (c *Container) runPoststart(ctx context.Context) error {
	err := hook.Run(ctx, hook.Poststart, hook.Of(c.Bundle.Spec, hook.Poststart), c.hookState(specs.StateRunning))
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), passSignalWait)
	defer cancel()
	return errors.Join(err, c.init.Kill(ctx, sigkill, true))
}

// runPoststop runs the hooks that are due when nothing is left of the
// container, if it got as far as its create hooks. A failure is logged and has
// no other effect.
func (c *Container) runPoststop(ctx context.Context) {
	if err := RunPoststop(ctx, c.Bundle, c.ID); err != nil {
		log.G(ctx).WithField("container", c.ID).WithError(err).Warn("a hook failed after the container's end")
	}
}

// RunPoststop runs the poststop hooks of a container that is gone, if they are
// due: they run once, in the first process that claims them. ctx does not bound them.
func RunPoststop(ctx context.Context, b *bundle.Bundle, id string) error {
	due, err := bundle.ClaimPoststop(b.Dir)
	if err != nil || !due {
		return err
	}
	return hook.RunAll(context.WithoutCancel(ctx), poststopWait, hook.Poststop, hook.Of(b.Spec, hook.Poststop), stateOf(b, id, specs.StateStopped))
}
