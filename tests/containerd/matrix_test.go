package containerd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// scene plays one subject of the matrix: it makes containers, performs
// operations on them, and records the outcomes. It is the same for every
// runtime.
type scene struct {
	name string
	play func(context.Context, *stage)
}

// scenes are all subjects, in the order in which they are played in one pod.
func scenes() []scene {
	return slices.Concat(stateScenes(), execScenes(), signalScenes(), stdioScenes(), limitScenes(), idScenes())
}

// sceneTimeout bounds a scene: one that hangs is named, and the test ends.
const sceneTimeout = 3 * time.Minute

// The same scenes are played with runc's shim and with ours under the same
// containerd. Whatever differs must be in the list of known differences, with
// its reason, and whatever is in the list must be seen.
func TestMatrix(t *testing.T) {
	needVM(t)
	each(t, func(_ context.Context, t *testing.T, d *harness.Daemon) {
		// No subtests: one of the two proves nothing without the other. The
		// scenes have their own time: together they may take longer than other
		// tests.
		ctx, cancel := context.WithCancelCause(d.Context(t.Context()))
		peer, played := startPeer(t, d), make(chan *sheet, 1)
		var playing sync.WaitGroup
		playing.Go(func() {
			defer close(played) // also if a scene of runc's ends the test
			played <- playAll(ctx, cancel, t, peer)
		})
		defer func() {
			cancel(nil)
			playing.Wait() // the test must not end before its goroutine
		}()
		kata := playAll(ctx, cancel, t, d)
		runc := <-played
		if runc == nil {
			return
		}
		for _, complaint := range compare(d.Release().Version(ctx), runc, kata, known) {
			t.Error(complaint)
		}
		t.Logf("%d rows", len(kata.order))
		if testing.Verbose() {
			t.Log(runc.beside(kata))
		}
	})
}

// errOther ends the scenes of one runtime when one of the other's cannot continue.
var errOther = errors.New("a scene of the other runtime failed")

// startPeer starts a containerd of the same release for runc.
func startPeer(t *testing.T, d *harness.Daemon) *harness.Daemon {
	t.Helper()
	o := options(d.Release())
	o.Runtime = harness.Runc
	peer := startDaemon(t, o)
	t.Cleanup(func() {
		if err := peer.Stop(context.Background()); err != nil {
			t.Errorf("stop runc's containerd: %v", err)
		}
	})
	return peer
}

// playAll plays the scenes with one daemon. A scene that cannot continue ends
// the test, and by cancel also the scenes of the other runtime: the rest would
// prove nothing.
func playAll(ctx context.Context, cancel context.CancelCauseFunc, t *testing.T, d *harness.Daemon) *sheet {
	t.Helper()
	all, name, scene, over, began := newSheet(), d.Runtime().Name, "", false, time.Now()
	defer func() {
		switch {
		case over:
		case stopped(ctx):
			t.Logf("%s: scene %q was stopped after row %q: %v", name, scene, all.last(), errOther)
		default:
			t.Logf("%s: scene %q broke off after row %q", name, scene, all.last())
			cancel(errOther)
		}
	}()
	s := newStage(ctx, t, d, all)
	defer s.close()
	for _, sc := range scenes() {
		if stopped(ctx) {
			t.FailNow()
		}
		scene, s.scene = sc.name, sc.name
		s.playOne(ctx, sc)
	}
	over = true
	t.Logf("%s took %.1f s", name, time.Since(began).Seconds())
	return all
}

// stopped reports whether the scenes of one runtime have to end because one of the
// other's failed.
func stopped(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errOther) }

// playOne plays a scene within its time.
func (s *stage) playOne(ctx context.Context, sc scene) {
	ctx, cancel := context.WithTimeout(ctx, sceneTimeout)
	defer cancel()
	sc.play(ctx, s)
	s.strike(ctx)
}

// sheet has the recorded outcomes of the scenes: one per row.
type sheet struct {
	order []string
	rows  map[string]string
}

func newSheet() *sheet { return &sheet{rows: map[string]string{}} }

// note adds a row; its name must be new.
func (s *sheet) note(name, outcome string) error {
	if _, taken := s.rows[name]; taken {
		return fmt.Errorf("row %q is noted twice", name)
	}
	s.order = append(s.order, name)
	s.rows[name] = outcome
	return nil
}

// last returns the name of the latest row; "" if there is none.
func (s *sheet) last() string {
	if len(s.order) == 0 {
		return ""
	}
	return s.order[len(s.order)-1]
}

// beside formats two sheets as one table.
func (s *sheet) beside(other *sheet) string {
	text := "row | runc | kata"
	for _, name := range s.order {
		mark := ""
		if other.rows[name] != s.rows[name] {
			mark = " | DIFFERS"
		}
		text += fmt.Sprintf("\n%s | %s | %s%s", name, s.rows[name], other.rows[name], mark)
	}
	return text
}
