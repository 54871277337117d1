package k8s

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/k8s/node"
)

// buildOf makes the directory of a build to install. Each word makes another
// version.
func buildOf(word string) (string, error) {
	dir := filepath.Join(node.Dir, "build-"+word)
	return dir, bed.layout.Stage(dir, word)
}

// install installs a build on the node.
func install(ctx context.Context, word string) error {
	dir, err := buildOf(word)
	if err != nil {
		return fmt.Errorf("make build %s: %w", word, err)
	}
	_, err = installer(ctx, "install", "--from", dir)
	return err
}

// installer runs a command of the installer on the node, and returns its output.
func installer(ctx context.Context, args ...string) (string, error) {
	args = append(args, "--host-root", "/")
	out, err := exec.CommandContext(ctx, filepath.Join(bed.layout.Bin(), "kata-runtime"), args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kata-runtime %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

// handlerFile is what the installer writes for this containerd.
const handlerFile = "/etc/containerd/conf.d/50-katabox.toml"

// The installer upgrades a node on which a pod runs, refuses to remove what the
// pod needs, and then removes everything.
func TestUpgradeAndUninstall(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		s.asInstalled()
		defer s.installAgain()
		pod := s.pod("through", countingPod)
		s.ready(pod)
		s.ofInstalled(pod)
		before := s.containers(pod)
		starts := s.node.Starts(node.Containerd)
		if err := install(s.ctx, "2"); err != nil {
			s.Fatal(err)
		}
		s.same("starts of containerd", fmt.Sprint(s.node.Starts(node.Containerd)), fmt.Sprint(starts))
		newer := s.pod("newer", countingPod)
		s.ready(newer)
		if s.version(pod) == s.version(newer) {
			s.Errorf("both pods run version %s", s.version(pod))
		}
		s.goesOn("the upgrade", pod)
		if out, err := installer(s.ctx, "uninstall"); err == nil {
			s.Errorf("uninstalled although pods run: %s", out)
		}
		s.goesOn("the refused uninstall", pod)
		s.installed("the refused uninstall")
		s.same("containers", s.containers(pod), before)
		s.clear()
		if err := nothingLeft(s.ctx); err != nil { // a shim ends soon after its pod
			s.Fatal(err)
		}
		s.uninstalled()
	})
}

// installed checks that what pods need is still there.
func (s *stage) installed(after string) {
	s.Helper()
	for _, path := range []string{"/opt/kata/current/bin/containerd-shim-kata-v2", "/opt/kata/current/share/kata-containers/vmlinux", handlerFile} {
		if _, err := os.Stat(path); err != nil {
			s.Errorf("after %s: %v", after, err)
		}
	}
}

// installAgain makes the node as the other tests expect it, also if the case has
// failed.
func (s *stage) installAgain() {
	if err := install(context.WithoutCancel(s.ctx), "1"); err != nil {
		s.Error(err)
	}
}

// uninstalled uninstalls, checks that nothing is left, and installs again.
func (s *stage) uninstalled() {
	if _, err := installer(s.ctx, "uninstall"); err != nil {
		s.Fatal(err)
	}
	for _, path := range []string{"/opt/kata", handlerFile} {
		if _, err := os.Lstat(path); err == nil {
			s.Errorf("%s is left", path)
		}
	}
	pod := s.pod("no-handler", countingPod)
	s.until("the event", "said", func() string {
		events := s.must("get", "events", "--field-selector", "involvedObject.name="+pod, "-o", "jsonpath={.items[*].message}")
		if !strings.Contains(events, `no runtime for "kata" is configured`) {
			return events
		}
		return "said"
	})
	if err := install(s.ctx, "2"); err != nil {
		s.Fatal(err)
	}
	s.ready(pod) // the kubelet tries again
}

// version returns the installed version that a pod's shim was started from.
func (s *stage) version(pod string) string {
	s.Helper()
	program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", s.shim(pod)))
	if err != nil {
		s.Fatal(err)
	}
	return filepath.Base(filepath.Dir(filepath.Dir(program)))
}
