package env

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/tests/harness"
)

// CRIToolsVersion is the release of crictl and critest; tests/tools/critools.sh
// reads it here.
const CRIToolsVersion = "1.37.0"

// RuncVersion is the runc that the "runc" handler runs, read by the same script.
const RuncVersion = "1.5.3"

// cniBinDir is where Debian's containernetworking-plugins installs.
const cniBinDir = "/usr/lib/cni"

// ToolsDir holds crictl, critest and ginkgo.
func ToolsDir(l harness.Layout) string { return filepath.Join(l.Build(), "cri-tools-"+CRIToolsVersion) }

// CrictlPath is the command line client.
func CrictlPath(l harness.Layout) string { return filepath.Join(ToolsDir(l), "crictl") }

// CritestPath is the conformance suite.
func CritestPath(l harness.Layout) string { return filepath.Join(ToolsDir(l), "critest") }

func runcPath(l harness.Layout) string {
	return filepath.Join(l.Build(), "runc-"+RuncVersion, "runc")
}

// Missing returns an error that says what must be built or installed before
// Start can succeed.
func Missing(l harness.Layout) error {
	var errs []error
	for path, command := range map[string]string{
		CrictlPath(l): "make critools", CritestPath(l): "make critools", runcPath(l): "make critools",
		filepath.Join(cniBinDir, "bridge"): "make deps", "/usr/sbin/iptables": "make deps",
	} {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("%w: run %q", err, command))
		}
	}
	return errors.Join(errs...)
}
