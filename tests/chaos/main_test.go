package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// bed is what all tests share: one daemon per release, started at first use.
var bed struct {
	layout   harness.Layout
	releases []harness.Release
	daemons  map[string]*harness.Daemon
	rounds   int
	// oneIn is how many pairs of a moment and a victim there are for each that
	// is played; the seed chooses them.
	oneIn int
	seed  uint64
}

func TestMain(m *testing.M) { harness.Main(m, prepare, finish) }

// finish stops the engines, and prints what was measured.
func finish() error {
	var errs []error
	for release, d := range bed.daemons {
		if err := d.Stop(context.Background()); err != nil {
			errs = append(errs, fmt.Errorf("containerd %s: %w", release, err))
		}
	}
	if err := dropSaved(); err != nil {
		errs = append(errs, fmt.Errorf("remove the checkpoints: %w", err))
	}
	results.print(os.Stdout)
	return errors.Join(errs...)
}

func prepare() (err error) {
	bed.daemons = map[string]*harness.Daemon{}
	if bed.layout, err = harness.FindLayout(); err != nil {
		return err
	}
	if bed.releases, err = harness.ReleasesFromEnv(bed.layout); err != nil {
		return err
	}
	if bed.rounds, err = positive("KATABOX_CHAOS_ROUNDS"); err != nil {
		return err
	}
	if bed.oneIn, err = positive("KATABOX_CHAOS_ONE_IN"); err != nil {
		return err
	}
	if harness.UseTemplates() {
		moments = append(moments, restoring)
	}
	bed.seed, err = number("KATABOX_CHAOS_SEED", rand.Uint64())
	return err
}

// positive returns the value of a variable, 1 if it is not set.
func positive(variable string) (int, error) {
	n, err := number(variable, 1)
	if err == nil && (n < 1 || n > 1000) {
		err = fmt.Errorf("%s=%d: want 1 to 1000", variable, n)
	}
	return int(n), err
}

func number(variable string, unset uint64) (uint64, error) {
	text := os.Getenv(variable)
	if text == "" {
		return unset, nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", variable, err)
	}
	return n, nil
}

// daemon returns the shared containerd of a release; the releases take turns.
func daemon(t *testing.T, turn int) *harness.Daemon {
	t.Helper()
	return daemonWith(t, turn, "")
}

// daemonWith is like daemon, for pods whose share virtiofsd serves, unless that
// is "".
func daemonWith(t *testing.T, turn int, virtiofsd string) *harness.Daemon {
	t.Helper()
	release := bed.releases[turn%len(bed.releases)]
	if d := bed.daemons[release.Name+virtiofsd]; d != nil {
		return d
	}
	d, err := harness.Start(t.Context(), harness.Options{
		Layout: bed.layout, Release: release, Runtime: harness.Kata, Kata: harness.KataConfig{Virtiofsd: virtiofsd},
	})
	if err != nil {
		t.Fatal(err)
	}
	bed.daemons[release.Name+virtiofsd] = d
	return d
}

// sceneTimeout bounds one scene. It is generous: a machine without KVM boots a
// VM in seconds, or in many when it has other work too.
const sceneTimeout = 6 * time.Minute

// within is harness.Daemon.Test for a scene, which also says how to repeat it.
func within(t *testing.T, d *harness.Daemon) context.Context {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d, containerd %s", bed.seed, d.Release().Name)
		}
	})
	return d.Test(t, sceneTimeout, d.Settled)
}
