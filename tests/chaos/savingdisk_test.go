package chaos

import (
	"context"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// written is what writes a guest's memory to a disk.
type written struct {
	configure func(t *testing.T, d *harness.Daemon, dir string)
	// open makes what write writes, and returns a container of it.
	open  func(ctx context.Context, s *scene) (*harness.Container, error)
	write func(ctx context.Context, s *scene, c *harness.Container, dir string) error
}

var writers = map[string]written{
	"checkpoint": {
		func(t *testing.T, d *harness.Daemon, _ string) { t.Helper(); saving(t, d) },
		func(ctx context.Context, s *scene) (*harness.Container, error) { return s.openSingle(ctx) },
		func(ctx context.Context, s *scene, c *harness.Container, dir string) error {
			return save(ctx, c, s.d, dir)
		},
	},
	"hibernation": {
		hibernatingIn,
		func(ctx context.Context, s *scene) (*harness.Container, error) {
			if err := s.openPod(ctx); err != nil {
				return nil, err
			}
			return s.service(ctx, idle)
		},
		func(ctx context.Context, s *scene, _ *harness.Container, _ string) error {
			return s.kataRuntime(ctx, "hibernate")
		},
	},
}

// eachWriter runs a test for each, with a bad disk, and a scene whose victim is only
// the disk.
func eachWriter(t *testing.T, run func(ctx context.Context, t *testing.T, s *scene, w written, disk *badDisk)) {
	t.Helper()
	for name, w := range writers {
		t.Run(name, func(t *testing.T) {
			disk := mountBadDisk(t)
			d := daemon(t, len(bed.releases)-1)
			configure(t, d, "", killTimeout())
			w.configure(t, d, filepath.Join(disk.dir, "made"))
			ctx := within(t, d)
			s := &scene{t: t, d: d, random: rand.New(rand.NewPCG(bed.seed, 0)), tape: record(ctx, d)}
			t.Cleanup(s.tape.stop)
			run(ctx, t, s, w, disk)
		})
	}
}

// A full disk fails the checkpoint and the hibernation, leaves nothing of them, and
// does no other harm: when there is room they succeed.
func TestFullDisk(t *testing.T) {
	eachWriter(t, func(ctx context.Context, t *testing.T, s *scene, w written, disk *badDisk) {
		c, err := w.open(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(disk.dir, "made")
		disk.room.Store(s.someBytes())
		if err := w.write(ctx, s, c, dir); err == nil || !strings.Contains(err.Error(), "no space left on device") {
			t.Errorf("with a full disk: %v", err)
		}
		if err := emptyDir(filepath.Join(disk.below, "made")); err != nil {
			t.Error(err)
		}
		works(ctx, t, c, "echo y > /y && cat /y", "y\n")
		disk.room.Store(endless)
		if err := w.write(ctx, s, c, dir); err != nil {
			t.Errorf("with room: %v", err)
		}
		works(ctx, t, c, "cat /y", "y\n")
		if isThere(filepath.Join(dir, checkpointFile)) {
			if err := s.restorable(ctx, dir, c.Box.ID()); err != nil {
				t.Error(err)
			}
		}
		s.endWell(ctx)
	})
}

// A disk that hangs while a guest's memory is written does not keep the pod from being
// removed within removeTimeout. What was written is no checkpoint then: a file with
// another name may be left, because the shim ends before the disk would remove it.
func TestHungDisk(t *testing.T) {
	eachWriter(t, func(ctx context.Context, t *testing.T, s *scene, w written, disk *badDisk) {
		c, err := w.open(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		disk.hang()
		answered := make(chan error, 1)
		go func() { answered <- w.write(ctx, s, c, filepath.Join(disk.dir, "made")) }()
		if err := disk.awaitHeld(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.cleanUp(ctx, removeTimeout); err != nil {
			t.Errorf("remove within %v: %v", removeTimeout, err)
		}
		select {
		case err := <-answered:
			if err == nil {
				t.Error("it succeeded on a disk that hangs")
			}
		case <-time.After(answerTimeout):
			t.Errorf("it had no answer within %v of the removal", answerTimeout)
		}
		disk.release()
		if err := awaitNone(s.d, removeTimeout, harness.KindShim, harness.KindVMM); err != nil {
			t.Error(err)
		}
		if isThere(filepath.Join(disk.below, "made", checkpointFile)) {
			t.Error("there is a checkpoint")
		}
		for _, a := range s.actors {
			if err := s.toldOnce(a.process, killed); err != nil {
				t.Error(err)
			}
		}
	})
}
