package k8s

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/k8s/node"
)

// Version is the Kubernetes release; tests/tools/k8s.sh reads it here.
const Version = "1.36.3"

// toolsDir holds Kubernetes' programs and etcd.
func toolsDir(l harness.Layout) string { return filepath.Join(l.Build(), "k8s-"+Version) }

func imageCache(l harness.Layout) string { return filepath.Join(l.Build(), "cri-images") }

// runcPath is the runc that tests/cri uses.
func runcPath(l harness.Layout) string {
	return filepath.Join(l.Build(), "runc-"+env.RuncVersion, "runc")
}

// missing returns an error that names missing files.
func missing(l harness.Layout) error {
	paths := []string{runcPath(l), l.Shim(), l.Kernel(), l.Initrd()}
	for _, name := range []string{node.Etcd, node.APIServer, node.Controller, node.Scheduler, node.Kubelet, "kubectl"} {
		paths = append(paths, filepath.Join(toolsDir(l), name))
	}
	var errs []error
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("%w: run \"make test-k8s\"", err))
		}
	}
	return errors.Join(errs...)
}
