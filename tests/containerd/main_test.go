package containerd

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// bed is what all tests share: one daemon per release, started at first use.
var bed struct {
	layout   harness.Layout
	runtime  harness.Runtime
	releases []harness.Release
	daemons  map[string]*harness.Daemon
}

func TestMain(m *testing.M) { harness.Main(m, prepare, finish) }

// finish stops the engines.
func finish() error {
	var errs []error
	for release, d := range bed.daemons {
		if err := d.Stop(context.Background()); err != nil {
			errs = append(errs, fmt.Errorf("containerd %s: %w", release, err))
		}
	}
	return errors.Join(errs...)
}

func prepare() (err error) {
	bed.daemons = map[string]*harness.Daemon{}
	if bed.layout, err = harness.FindLayout(); err != nil {
		return err
	}
	if bed.runtime, err = harness.RuntimeFromEnv(); err != nil {
		return err
	}
	bed.releases, err = harness.ReleasesFromEnv(bed.layout)
	return err
}

// testTimeout bounds one test with one release. It is generous: a machine
// without KVM boots fifty VMs in minutes when it has other work too.
const testTimeout = 10 * time.Minute

// each runs a test with every release, on the shared daemons. Nothing may be
// left when it returns.
func each(t *testing.T, run func(context.Context, *testing.T, *harness.Daemon)) {
	t.Helper()
	onShared(t, bed.releases, run)
}

// newest is each with only the newest release: for what does not depend on the
// engine.
func newest(t *testing.T, run func(context.Context, *testing.T, *harness.Daemon)) {
	t.Helper()
	onShared(t, bed.releases[len(bed.releases)-1:], run)
}

func onShared(t *testing.T, releases []harness.Release, run func(context.Context, *testing.T, *harness.Daemon)) {
	t.Helper()
	for _, release := range releases {
		t.Run(release.Name, func(t *testing.T) {
			d := bed.daemons[release.Name]
			if d == nil {
				d = startDaemon(t, options(release))
				bed.daemons[release.Name] = d
			}
			run(d.Test(t, testTimeout, d.Settled), t, d)
		})
	}
}

// eachOwn is each with a dedicated daemon, whose options the test may change.
func eachOwn(t *testing.T, change func(*harness.Options), run func(context.Context, *testing.T, *harness.Daemon)) {
	t.Helper()
	onOwn(t, bed.releases, change, run)
}

// newestOwn is newest with a dedicated daemon.
func newestOwn(t *testing.T, change func(*harness.Options), run func(context.Context, *testing.T, *harness.Daemon)) {
	t.Helper()
	onOwn(t, bed.releases[len(bed.releases)-1:], change, run)
}

func onOwn(t *testing.T, releases []harness.Release, change func(*harness.Options), run func(context.Context, *testing.T, *harness.Daemon)) {
	t.Helper()
	for _, release := range releases {
		t.Run(release.Name, func(t *testing.T) {
			o := options(release)
			change(&o)
			d := startDaemon(t, o)
			t.Cleanup(func() {
				if err := d.Stop(context.Background()); err != nil {
					t.Errorf("stop containerd: %v", err)
				}
			})
			run(d.Test(t, testTimeout, d.Settled), t, d)
		})
	}
}

func options(release harness.Release) harness.Options {
	return harness.Options{Layout: bed.layout, Release: release, Runtime: bed.runtime}
}

func startDaemon(t *testing.T, o harness.Options) *harness.Daemon {
	t.Helper()
	d, err := harness.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// needVM skips a test that means nothing without a virtual machine.
func needVM(t *testing.T) {
	t.Helper()
	if !bed.runtime.VM {
		t.Skipf("%s runs no virtual machine", bed.runtime.Name)
	}
}
