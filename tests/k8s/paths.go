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
const Version = "1.37.2"

// SandboxVersion is the release of the SIG's Agent Sandbox; tests/tools/k8s.sh
// reads it here.
const SandboxVersion = "0.5.6"

// sandboxController is the program of that release's controller.
const sandboxController = "agent-sandbox-controller"

// The programs of Kubernetes' own suite, which "tests/tools/k8s.sh conformance"
// builds: the suite, what runs it, and the program of its pods.
const suiteProgram, suiteRunner, suitePods = "e2e.test", "ginkgo", "agnhost"

// toolsDir holds Kubernetes' programs, etcd, and Agent Sandbox's controller.
func toolsDir(l harness.Layout) string { return filepath.Join(l.Build(), "k8s-"+Version) }

// EnvConformance asks for Kubernetes' own suite, which takes too long to run with
// the other tests: it is a pattern of its cases' names, "all" for those of
// nodeConformance.
const EnvConformance = "KATABOX_TEST_CONFORMANCE"

// sandboxTypes is the directory with Agent Sandbox's CustomResourceDefinitions,
// below toolsDir.
const sandboxTypes = "agent-sandbox-" + SandboxVersion

func imageCache(l harness.Layout) string { return filepath.Join(l.Build(), "cri-images") }

// runcPath is the runc that tests/cri uses.
func runcPath(l harness.Layout) string {
	return filepath.Join(l.Build(), "runc-"+env.RuncVersion, "runc")
}

// missing returns an error that names missing files.
func missing(l harness.Layout) error {
	paths := []string{runcPath(l), l.Shim(), l.Kernel(), l.Initrd()}
	for _, name := range []string{node.Etcd, node.APIServer, node.Controller, node.Scheduler, node.Kubelet, "kubectl", sandboxController, sandboxTypes} {
		paths = append(paths, filepath.Join(toolsDir(l), name))
	}
	if os.Getenv(EnvConformance) != "" {
		paths = append(paths, filepath.Join(toolsDir(l), suiteProgram), filepath.Join(toolsDir(l), suiteRunner), filepath.Join(toolsDir(l), suitePods))
	}
	var errs []error
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			errs = append(errs, fmt.Errorf("%w: run \"make test-k8s\"", err))
		}
	}
	return errors.Join(errs...)
}
