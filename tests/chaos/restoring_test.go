package chaos

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/katabox/katabox/tests/harness"
)

// saved is a checkpoint from which many scenes continue.
type saved struct {
	dir string
	// id is the saved container's, and size that of the file in bytes.
	id   string
	size int64
}

// savedOnes has the checkpoints of each daemon, without and with each bomb.
var savedOnes = map[string]saved{}

// dropSaved removes them.
func dropSaved() error {
	for _, one := range savedOnes {
		if err := os.RemoveAll(one.dir); err != nil {
			return err
		}
	}
	return nil
}

// aSaved returns a checkpoint for the scene, which the first one makes.
func (s *scene) aSaved(ctx context.Context) (saved, error) {
	key := s.d.Tag() + s.victim.bomb
	if one, ok := savedOnes[key]; ok {
		return one, nil
	}
	dir, err := os.MkdirTemp("", "katabox-saved-")
	if err != nil {
		return saved{}, err
	}
	one := saved{dir: dir, id: s.d.NewID("saved")}
	savedOnes[key] = one
	r, w := io.Pipe()
	defer w.Close()
	c, err := s.d.Create(ctx, single(s.victim, one.id, r))
	if err != nil {
		return saved{}, err
	}
	if err := c.Start(ctx); err != nil {
		return saved{}, err
	}
	if s.victim.bomb != "" {
		if err := c.Out.Await(ctx, "armed"); err != nil {
			return saved{}, err
		}
	}
	if err := save(ctx, c, s.d, dir); err != nil {
		return saved{}, err
	}
	info, err := os.Stat(filepath.Join(dir, checkpointFile))
	if err != nil {
		return saved{}, err
	}
	one.size = info.Size()
	savedOnes[key] = one
	return one, c.Remove(ctx)
}

// check checks that the checkpoint is as it was.
func (o saved) check(context.Context) error {
	info, err := os.Stat(filepath.Join(o.dir, checkpointFile))
	if err == nil && info.Size() != o.size {
		err = fmt.Errorf("the checkpoint has %d bytes, had %d", info.Size(), o.size)
	}
	return err
}

// playRestoringSaved strikes while a container continues from a checkpoint. The bomb's
// word is the first that it reads.
func playRestoringSaved(ctx context.Context, s *scene) error {
	from, err := s.aSaved(ctx)
	if err != nil {
		return err
	}
	s.checks = append(s.checks, from.check)
	cfg := single(s.victim, from.id, strings.NewReader("now\n"))
	cfg.ID, cfg.Checkpoint = s.d.NewID("copy"), from.dir
	s.bomb = io.Discard
	some := s.someBytes()
	_, err = s.at(ctx, from.dir, []stage{
		{"before the checkpoint is loaded", func(p progress) bool { return p.hasMachine(cfg.ID) }},
		{"while the checkpoint is loaded", func(p progress) bool { return p.at >= some }},
		{"when the checkpoint is loaded", func(p progress) bool { return p.at >= from.size }},
	}, func(ctx context.Context) error { return s.goOn(ctx, cfg) })
	return err
}

// goOn makes and starts a container that continues from a checkpoint.
func (s *scene) goOn(ctx context.Context, cfg harness.ContainerConfig) error {
	c, err := s.d.Create(ctx, cfg)
	if err != nil {
		return err
	}
	s.cast(actor{name: "copy", container: c.Box.ID(), process: &c.Process})
	err = c.Start(ctx)
	s.last().started = err == nil
	return err
}
