package chaos

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// The client dies that has asked for a checkpoint or a hibernation: the container runs
// on, whether what was asked for is done or not.
func TestClientDies(t *testing.T) {
	for name, w := range writers {
		t.Run(name, func(t *testing.T) {
			d := daemon(t, len(bed.releases)-1)
			base, err := os.MkdirTemp("/var/tmp", "kb") //nolint:usetesting // t.TempDir may be in memory
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(base) })
			dir := filepath.Join(base, "made")
			w.configure(t, d, dir)
			ctx := within(t, d)
			asking, die := context.WithCancel(ctx)
			defer die()
			client := victim{name: "client", strike: func(context.Context, *scene) error {
				die()
				return nil
			}}
			s := &scene{t: t, d: d, victim: client, random: rand.New(rand.NewPCG(bed.seed, 0)), tape: record(ctx, d)}
			t.Cleanup(s.tape.stop)
			c, err := w.open(ctx, s)
			if err != nil {
				t.Fatal(err)
			}
			some := s.someBytes()
			answer, err := s.at(ctx, dir, []stage{
				{"before the file is written", func(p progress) bool { return p.open }},
				{"while the file is written", func(p progress) bool { return p.size >= some }},
			}, func(context.Context) error { return w.write(asking, s, c, dir) })
			if err != nil {
				t.Error(err)
			}
			works(ctx, t, c, "echo y > /y && cat /y", "y\n")
			if name == "checkpoint" {
				if err := s.judgeSaved(ctx, dir, c.Box.ID(), answer); err != nil {
					t.Error(err)
				}
			} else if err := emptyDir(dir); err != nil {
				t.Error(err)
			}
			s.endWell(ctx)
		})
	}
}

// endWell ends what runs on, and checks that each exit is reported once.
func (s *scene) endWell(ctx context.Context) {
	s.t.Helper()
	s.all(ctx, s.judgeEnd)
	if err := s.cleanUp(ctx, answerTimeout); err != nil {
		s.t.Error(err)
	}
	s.all(ctx, s.judgeExits)
}
