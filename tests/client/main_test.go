package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/engines/host"
	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// bed is what all tests share.
var bed struct {
	layout  harness.Layout
	runtime harness.Runtime
	suite   suite
	// path is PATH with the containerd and the runtime under test.
	path string
}

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: containerd needs root")
		os.Exit(0)
	}
	before := suiteCgroups()
	os.Exit(host.Run(func() int { return runOnHost(m) }, func() error { return removeCgroups(before) }))
}

// runOnHost prepares the private host and runs the tests on it.
func runOnHost(m *testing.M) int {
	closeAll, err := prepare()
	code := 1
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, closeAll()); err != nil {
		fmt.Fprintln(os.Stderr, "the suite's host:", err)
		return 1
	}
	return code
}

func prepare() (closeAll func() error, err error) {
	var undo []func() error
	closeAll = func() error {
		var errs []error
		for i := range undo {
			errs = append(errs, undo[len(undo)-1-i]())
		}
		return errors.Join(errs...)
	}
	if bed.layout, err = harness.FindLayout(); err != nil {
		return closeAll, err
	}
	if bed.runtime, err = harness.RuntimeFromEnv(); err != nil {
		return closeAll, err
	}
	if err := os.MkdirAll(bed.layout.Logs(), 0o755); err != nil {
		return closeAll, fmt.Errorf("make log directory: %w", err)
	}
	work, err := os.MkdirTemp(bed.layout.Build(), "client-suite-")
	if err != nil {
		return closeAll, fmt.Errorf("make work directory: %w", err)
	}
	undo = append(undo, func() error { return os.RemoveAll(work) })
	for name, target := range map[string]string{"root": suiteRoot, "tmp": suiteTemp} {
		if err := giveDirectory(filepath.Join(work, name), target); err != nil {
			return closeAll, err
		}
		undo = append(undo, func() error { return unix.Unmount(target, unix.MNT_DETACH) })
	}
	p, digest, err := startRegistry(work)
	if err != nil {
		return closeAll, err
	}
	undo = append(undo, p.Close)
	if err := writeConfig(harness.KataConfig{}); err != nil {
		return closeAll, err
	}
	bed.suite, err = newSuite(work, p, digest)
	return closeAll, err
}

// Directories of the suite. Snapshots are overlays, which do not work on
// another overlay, such as the private host's /var/lib, so both directories are
// mounted from below build. The second has a short name, for sockets.
const (
	suiteRoot = "/var/lib/containerd-test" // containerd's root
	suiteTemp = "/run/t"
)

func giveDirectory(dir, target string) error {
	for _, d := range []string{dir, target} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return fmt.Errorf("make a directory for the suite: %w", err)
		}
	}
	if err := unix.Mount(dir, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", dir, target, err)
	}
	return nil
}

func startRegistry(work string) (*proxy, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	archive, err := image.Build(ctx, filepath.Join(bed.layout.Build(), "images"))
	if err != nil {
		return nil, "", err
	}
	handler, digest, err := buildImages(ctx, archive)
	if err != nil {
		return nil, "", err
	}
	p, err := startProxy(handler, certFile(work))
	return p, digest, err
}

func certFile(work string) string { return filepath.Join(work, "registries.pem") }

// writeConfig puts the runtime's configuration where a user has it; the private
// host's /etc is not the machine's.
func writeConfig(c harness.KataConfig) error {
	if !bed.runtime.VM {
		return nil
	}
	const config = "/etc/kata-containers/configuration.toml"
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		return fmt.Errorf("configure the runtime: %w", err)
	}
	return c.Write(bed.layout, config)
}

// newSuite configures the suite: it pulls from the proxy, uses our digest of
// the main image, and the programs of the containerd under test.
func newSuite(work string, p *proxy, digest string) (suite, error) {
	release, err := harness.FindRelease(bed.layout, "2.4")
	if err != nil {
		return suite{}, err
	}
	bed.path = release.Dir + ":" + bed.layout.Bin() + ":" + os.Getenv("PATH")
	return suite{
		layout: bed.layout, timeout: suiteTimeout,
		env: []string{
			"PATH=" + bed.path, "TMPDIR=" + suiteTemp,
			"HTTPS_PROXY=" + p.URL, "SSL_CERT_FILE=" + certFile(work),
			"TEST_BUSYBOX_BY_DIGEST=ghcr.io/" + busyboxName + "@" + digest, // tests/tools/clientsuite.sh
		},
	}, nil
}
