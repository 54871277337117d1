package k8s

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/k8s/node"
)

// installerArchive returns the path of the installer's image, and its name.
func installerArchive(l harness.Layout) (path, image string) {
	return filepath.Join(l.Build(), "k8s-installer.tar"), "katabox.local/installer:k8s"
}

// makeInstaller makes the installer's image.
func makeInstaller(ctx context.Context, l harness.Layout) error {
	path, image := installerArchive(l)
	_, tag, _ := strings.Cut(image, ":")
	cmd := exec.CommandContext(ctx, "go", "run", "./deploy/image", "-out", strings.TrimSuffix(path, ".tar"), "-version", tag)
	cmd.Dir = l.Root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make the installer's image: %w: %s", err, out)
	}
	return nil
}

// manifest returns one of the manifests that are shipped, with the image that
// was made here.
func (s *stage) manifest(name string) string {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(bed.layout.Root, "deploy/kubernetes", name))
	if err != nil {
		s.Fatal(err)
	}
	_, image := installerArchive(bed.layout)
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		if before, _, found := strings.Cut(line, "image: "); found {
			lines[i] = before + "image: " + image
		}
	}
	return strings.Join(lines, "\n")
}

// label returns the node's label that the RuntimeClass selects.
func (s *stage) label() string {
	s.Helper()
	return s.must("get", "node", node.Name, "-o", `jsonpath={.metadata.labels.katacontainers\.io/kata-runtime}`)
}

// rolledOut waits until the DaemonSet has done its work on the node.
func (s *stage) rolledOut() {
	s.Helper()
	s.must("-n", "kube-system", "rollout", "status", "daemonset/katabox-installer", "--timeout=120s")
}

// One manifest installs, so that pods run and their metrics can be read, and another
// one uninstalls; while a pod runs, it only takes the node's label.
func TestDaemonSet(t *testing.T) {
	on(t, []string{kata}, func(s *stage) {
		s.asInstalled()
		s.begin()
		defer s.finish()
		s.apply(s.manifest("installer.yaml"))
		s.rolledOut()
		s.same("the label", s.label(), "true")
		pod := s.pod("installed", countingPod)
		s.ready(pod)
		s.ofInstalled(pod)
		s.monitored(pod)

		s.apply(s.manifest("uninstaller.yaml"))
		s.until("the label while a pod runs", "", s.label)
		s.goesOn("the refused uninstallation", pod)
		s.installed("the refused uninstallation")
		s.must("delete", "pod", pod)
		s.rolledOut()
		for _, path := range []string{"/opt/kata", handlerFile} {
			if _, err := os.Lstat(path); err == nil {
				s.Errorf("%s is left", path)
			}
		}
	})
}

// monitored reads the metrics of a running pod from the DaemonSet.
func (s *stage) monitored(pod string) {
	s.Helper()
	const port = "18083"
	s.forwarded(port+":8090", func(ctx context.Context) {
		var page string
		s.untilOr(ctx, "the monitor", "answers", func() (state string) {
			var err error
			if page, err = fetch(ctx, "http://127.0.0.1:"+port+"/metrics"); err != nil {
				return err.Error()
			}
			return "answers"
		})
		for _, name := range []string{"kata_shim_threads", "kata_hypervisor_threads", "kata_shim_agent_up", "kata_guest_load", "kata_agent_total_rss"} {
			s.sampled(page, name, `cri_name="`+pod+`"`, `cri_namespace="default"`, `cri_uid="`+s.get(pod, ".metadata.uid")+`"`, `sandbox_id="`+s.sandbox(pod)+`"`)
		}
		if !strings.Contains(page, "\nkata_monitor_running_shim_count 1\n") {
			s.Errorf("the monitor's own metrics:\n%s", page)
		}
	}, "-n", "kube-system", "daemonset/katabox-installer")
}

// sampled checks that a page has a sample of a metric with those labels.
func (s *stage) sampled(page, name string, labels ...string) {
	s.Helper()
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, name+"{") && !slices.ContainsFunc(labels, func(label string) bool { return !strings.Contains(line, label) }) {
			return
		}
	}
	s.Errorf("no sample of %s has the labels %q:\n%s", name, labels, page)
}

// begin makes the node one without Katabox, and with the image.
func (s *stage) begin() {
	archive, _ := installerArchive(bed.layout)
	s.ctr("images", "import", archive)
	s.must("label", "node", node.Name, "katacontainers.io/kata-runtime-")
	if _, err := installer(s.ctx, "uninstall"); err != nil {
		s.Fatal(err)
	}
}

// finish removes the DaemonSet and makes the node as the other tests expect it.
func (s *stage) finish() {
	ctx := context.WithoutCancel(s.ctx)
	if s.Failed() {
		s.Log(s.node.Kubectl(ctx, "", "-n", "kube-system", "describe", "pods").Out)
		s.Log(s.node.Kubectl(ctx, "", "-n", "kube-system", "logs", "daemonset/katabox-installer", "--all-containers").Out)
	}
	s.node.Kubectl(ctx, s.manifest("uninstaller.yaml"), "delete", "-f", "-")
	if r := s.node.Kubectl(ctx, "", "-n", "kube-system", "wait", "--for=delete", "pod", "--all", "--timeout=120s"); r.Code != 0 {
		s.Errorf("remove the DaemonSet's pods: %+v", r)
	}
	if err := install(ctx, "1"); err != nil {
		s.Error(err)
	}
	s.node.Kubectl(ctx, "", "label", "node", node.Name, "katacontainers.io/kata-runtime=true", "--overwrite")
}
