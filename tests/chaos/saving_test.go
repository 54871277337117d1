package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/api/services/tasks/v1"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	"github.com/containerd/typeurl/v2"

	"github.com/katabox/katabox/tests/harness"
)

// checkpointFile is the only file of a checkpoint.
const checkpointFile = "sandbox.katabox"

// saving gives the pods a QEMU that can save them.
func saving(t *testing.T, d *harness.Daemon) {
	t.Helper()
	dropIn(t, d, "60-saving", fmt.Sprintf("[hypervisor.qemu]\npath = %q\n", d.Layout().SavingQEMU(t)))
}

// single describes a container that can be saved: alone in its sandbox, and with
// the bomb in it if the victim needs one.
func single(v victim, id string, stdin io.Reader) harness.ContainerConfig {
	cfg := harness.ContainerConfig{Name: "alone", ID: id, Args: idle.Args}
	if v.bomb != "" {
		cfg.Args, cfg.Spec, cfg.Stdin = script(v.bombScript(id)), privileged(), stdin
	}
	return cfg
}

// openSingle makes and starts one.
func (s *scene) openSingle(ctx context.Context) (*harness.Container, error) {
	r, w := io.Pipe()
	s.t.Cleanup(func() { _ = w.Close() })
	c, err := s.d.Create(ctx, single(s.victim, s.d.NewID("alone"), r))
	if err != nil {
		return nil, err
	}
	if err := c.Start(ctx); err != nil {
		return nil, err
	}
	s.cast(actor{name: "alone", container: c.Box.ID(), process: &c.Process, started: true})
	if s.victim.bomb == "" {
		return c, nil
	}
	s.bomb = w
	return c, c.Out.Await(ctx, "armed")
}

// save has containerd save a container in a directory. Its client would pause the
// container around that, and leave it paused when containerd dies.
func save(ctx context.Context, c *harness.Container, d *harness.Daemon, dir string) error {
	options, err := typeurl.MarshalAnyToProto(&runcoptions.CheckpointOptions{ImagePath: dir})
	if err != nil {
		return err
	}
	_, err = d.Client.TaskService().Checkpoint(d.Context(ctx), &tasks.CheckpointTaskRequest{ContainerID: c.Box.ID(), Options: options})
	return err
}

// playSaving strikes while a container is saved.
func playSaving(ctx context.Context, s *scene) error {
	c, err := s.openSingle(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(s.t.TempDir(), "saved")
	some := s.someBytes()
	answer, err := s.at(ctx, dir, []stage{
		{"while the machine is taken apart", func(p progress) bool { return p.open }},
		{"while the checkpoint is written", func(p progress) bool { return p.size >= some }},
		{"when the checkpoint is complete", func(p progress) bool { return !p.open && isThere(filepath.Join(dir, checkpointFile)) }},
	}, func(ctx context.Context) error { return save(ctx, c, s.d, dir) })
	s.checks = append(s.checks, func(ctx context.Context) error { return s.judgeSaved(ctx, dir, c.Box.ID(), answer) })
	return err
}

func isThere(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// judgeSaved checks what is left of saving a container: nothing, or a whole
// checkpoint, which there must be if that was the answer.
func (s *scene) judgeSaved(ctx context.Context, dir, id string, answer error) error {
	s.t.Logf("the answer was: %v", answer)
	if !isThere(filepath.Join(dir, checkpointFile)) {
		if answer == nil {
			return errors.New("there is no checkpoint, though it was made")
		}
		return emptyDir(dir)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		return fmt.Errorf("beside the checkpoint there are %v, %w", entries, err)
	}
	s.t.Log("the checkpoint is complete")
	return s.restorable(ctx, dir, id)
}

// restorable checks that a container continues from a checkpoint. One that has the
// bomb may have its word too, and is not started.
func (s *scene) restorable(ctx context.Context, dir, saved string) error {
	cfg := single(s.victim, saved, strings.NewReader(""))
	cfg.ID, cfg.Checkpoint = s.d.NewID("again"), dir
	c, err := s.d.Create(ctx, cfg)
	if err != nil {
		return fmt.Errorf("continue from the checkpoint that is left: %w", err)
	}
	if s.victim.bomb == "" {
		if err = c.Start(ctx); err == nil {
			err = prints(ctx, c, "echo y > /y && cat /y", "y\n")
		}
	}
	return errors.Join(err, c.Remove(ctx))
}
