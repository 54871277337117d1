package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"time"

	stats "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestspec"
	"github.com/katabox/katabox/virtcontainers/metrics"
)

// Pause freezes all processes of a running container, in the guest; announce is
// called before the paused state is visible.
func (c *Container) Pause(ctx context.Context, announce func()) error {
	return c.turn(ctx, "pause", Running, Paused, announce, func(client *guest.Client) error {
		return c.pauseInGuest(ctx, client)
	})
}

// pauseInGuest has the guest freeze the container's processes. A guest that does not
// answer may do it all the same, and is told to thaw them.
func (c *Container) pauseInGuest(ctx context.Context, client *guest.Client) error {
	_, err := client.Task().Pause(ctx, &task.PauseRequest{ID: c.ID})
	if !guest.Unanswered(ctx, err) {
		return err
	}
	return errors.Join(err, c.thawLate(ctx, client))
}

// thawLate is thaw for a container that the guest may be about to freeze: it is repeated
// as long as that may begin.
func (c *Container) thawLate(ctx context.Context, client *guest.Client) error {
	for began := time.Now(); ; time.Sleep(deletePause) {
		if err := c.thaw(ctx, client); time.Since(began) >= beginWait {
			return err
		}
	}
}

// Resume lets a paused container run. One that the guest runs already, because it did
// not answer the Resume before in time, is resumed.
func (c *Container) Resume(ctx context.Context, announce func()) error {
	return c.turn(ctx, "resume", Paused, Running, announce, func(client *guest.Client) error {
		_, err := client.Task().Resume(ctx, &task.ResumeRequest{ID: c.ID})
		if errdefs.IsFailedPrecondition(guest.Err(err)) && c.isInGuest(ctx, client, tasktypes.Status_RUNNING) {
			return nil
		}
		return err
	})
}

// isInGuest reports whether the guest says that the container is in that state.
func (c *Container) isInGuest(ctx context.Context, client *guest.Client, status tasktypes.Status) bool {
	state, err := client.Task().State(ctx, &task.StateRequest{ID: c.ID})
	return err == nil && state.Status == status
}

// turn moves the container from one state to another by a call to the guest. Turns are
// serialized: one that was given up, and is being undone, would undo the next as well.
func (c *Container) turn(ctx context.Context, verb string, from, to State, announce func(), do func(*guest.Client) error) error {
	if err := c.turning.Lock(ctx); err != nil {
		return fmt.Errorf("%s container %s: wait for the pause or resume before: %w", verb, c.ID, err)
	}
	defer c.turning.Unlock()
	if state := c.init.Info().State; state != from {
		return fmt.Errorf("%s container %s: it is %s, want %s: %w", verb, c.ID, state, from, errdefs.ErrFailedPrecondition)
	}
	leave, err := c.sandbox.sleeper.enter(ctx, "a call to "+verb+" container "+c.ID) // the state is set before it is looked at again
	if err != nil {
		return fmt.Errorf("%s container %s: %w", verb, c.ID, err)
	}
	defer leave()
	client, err := c.sandbox.agent()
	if err == nil {
		err = guest.Err(do(client))
	}
	if err != nil {
		return fmt.Errorf("%s container %s: %w", verb, c.ID, err)
	}
	c.init.mu.Lock()
	defer c.init.mu.Unlock()
	state, err := c.init.state.next(to)
	if err != nil { // it has ended meanwhile
		return fmt.Errorf("%s container %s: %w", verb, c.ID, err)
	}
	c.init.state = state
	announce()
	return nil
}

// Update changes the limits of a container, and with them the machine's size:
// the machine grows before they are raised and shrinks after they are lowered.
// resources is what the engine sent: the JSON of OCI LinuxResources.
func (c *Container) Update(ctx context.Context, resources *anypb.Any) error {
	leave, err := c.sandbox.sleeper.enter(ctx, "an update of container "+c.ID)
	if err != nil {
		return fmt.Errorf("update container %s: %w", c.ID, err)
	}
	defer leave()
	client, err := c.sandbox.agent()
	if err == nil {
		err = c.sandbox.sizing.Update(ctx, c.ID, resources.GetValue(), func(update *specs.LinuxResources) error {
			_, err := client.Task().Update(ctx, &task.UpdateTaskRequest{ID: c.ID, Resources: resources})
			if err == nil && update != nil {
				c.warnOfLost(ctx, guestspec.LostLimits(update))
				c.showLimits(ctx, update)
			}
			return guest.Err(err)
		})
	}
	if err != nil {
		return fmt.Errorf("update container %s: %w", c.ID, err)
	}
	return nil
}

// warnOfLost logs what the container has asked for and its guest does not get.
func (c *Container) warnOfLost(ctx context.Context, lost []string) {
	if len(lost) > 0 {
		log.G(ctx).WithField("container", c.ID).Warnf("not given to the guest: %v", lost)
	}
}

// Stats reads the container's counters in the guest. While the sandbox hibernates
// it returns the last ones, because reading counters must not wake a pod. It waits no
// longer than askTimeout, whatever ctx allows.
func (c *Container) Stats(ctx context.Context) (*stats.Metrics, error) {
	client, err := c.sandbox.agent()
	if err != nil {
		return nil, fmt.Errorf("read stats of container %s: %w", c.ID, err)
	}
	if all := c.sandbox.sleeper.countersAsleep(); all != nil {
		if m := all[c.ID]; m != nil {
			return m, nil
		}
		return nil, fmt.Errorf("read stats of container %s: %w", c.ID, errHibernates)
	}
	var resp *task.StatsResponse
	err = c.sandbox.ask(ctx, func(ctx context.Context) error {
		leave, err := c.sandbox.sleeper.enterAwake(ctx)
		if err != nil {
			return err
		}
		defer leave()
		resp, err = client.Task().Stats(ctx, &task.StatsRequest{ID: c.ID})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read stats of container %s: %w", c.ID, err)
	}
	counters, err := metrics.Decode(resp.Stats)
	if err != nil {
		return nil, fmt.Errorf("read stats of container %s: %w", c.ID, err)
	}
	return counters, nil
}
