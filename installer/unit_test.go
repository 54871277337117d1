package installer

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What an engine leaves behind when it is removed does not keep the node from being
// installed: Debian keeps its configuration and masks its service.
func TestEngineThatWasRemoved(t *testing.T) {
	h := newHost(t, nodes["both"])
	h.remove(unitOf("containerd"))
	mask := filepath.Join(h.root, "etc/systemd/system/containerd.service")
	if err := errors.Join(os.MkdirAll(filepath.Dir(mask), 0o755), os.Symlink("/dev/null", mask)); err != nil {
		t.Fatal(err)
	}
	h.noUnit = []string{"containerd"}
	before := h.tree()
	r := h.install(newBuild(t, "shim"))
	if diff := cmp.Diff([]string{"crio"}, r.Engines); diff != "" {
		t.Errorf("engines (-want +got):\n%s", diff)
	}
	if got := h.restarts(); got != "crio" {
		t.Errorf("restarted %q", got)
	}
	h.uninstall()
	if diff := cmp.Diff(before, h.tree()); diff != "" {
		t.Errorf("after uninstall (-want +got):\n%s", diff)
	}
}

// An engine of the node that is gone when Katabox is removed has nothing to be
// restarted, whether its program is still there or not.
func TestUninstallAfterTheEngineChanged(t *testing.T) {
	for name, program := range map[string]bool{"purged": false, "program": true} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nodes["both"])
			h.install(newBuild(t, "shim"))
			h.remove(unitOf("containerd"))
			h.noUnit = []string{"containerd"}
			if program {
				h.file("usr/bin/containerd", "", 0o755)
			}
			h.ran = nil
			h.uninstall()
			if got := h.restarts(); got != "crio" {
				t.Errorf("restarted %q", got)
			}
			if h.exists(Home) {
				t.Error("files of Katabox are left")
			}
		})
	}
}

// An engine that runs without a service must be restarted by hand.
func TestEngineWithoutAService(t *testing.T) {
	h := newHost(t, map[string]string{"usr/bin/containerd": ""})
	h.noUnit = []string{"containerd"}
	h.process(42, "/usr/bin/containerd")
	_, err := Install(t.Context(), h.options(newBuild(t, "shim")))
	if err == nil || !strings.Contains(err.Error(), "restart it by hand") {
		t.Errorf("install: %v", err)
	}
}

// systemctl try-restart succeeds for a service that does not run.
func TestServiceThatDoesNotRun(t *testing.T) {
	for _, runs := range []bool{false, true} {
		h := newHost(t, nodes["containerd 2.x"])
		if runs {
			h.process(42, "/usr/bin/containerd")
		}
		o := h.options(newBuild(t, "shim"))
		var said strings.Builder
		o.Say = func(line string) { said.WriteString(line + "\n") }
		r, err := Install(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if want := map[bool][]string{false: {}, true: {"containerd"}}[runs]; !slices.Equal(r.Restarted, want) {
			t.Errorf("it runs %t: restarted %q, want %q", runs, r.Restarted, want)
		}
		if !strings.Contains(said.String(), map[bool]string{false: "containerd is not running, nothing was restarted", true: "restarted containerd"}[runs]) {
			t.Errorf("it runs %t: %s", runs, said.String())
		}
	}
}

// An engine that the options name is restarted, wherever its program is.
func TestNamedEngineIsRestarted(t *testing.T) {
	h := newHost(t, nil)
	o := h.options(newBuild(t, "shim"))
	o.Engine = "crio"
	if _, err := Install(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := h.restarts(); got != "crio" {
		t.Errorf("restarted %q", got)
	}
}

// Docker's containerd, beside CRI-O, starts no pods: its configuration is not read
// further, and stays. Where it is the only engine it is not left out.
func TestContainerdOfDocker(t *testing.T) {
	const config = "disabled_plugins = [\"cri\"]\n"
	h := newHost(t, map[string]string{"etc/containerd/config.toml": config, "usr/bin/containerd": "", "etc/crio/crio.conf": ""})
	r := h.install(newBuild(t, "shim"))
	if diff := cmp.Diff([]string{"crio"}, r.Engines); diff != "" {
		t.Errorf("engines (-want +got):\n%s", diff)
	}
	if got := h.read(containerdConfig); got != config {
		t.Errorf("containerd has %q", got)
	}
	h = newHost(t, map[string]string{"etc/containerd/config.toml": config, "usr/bin/containerd": ""})
	if _, err := Install(t.Context(), h.options(newBuild(t, "shim"))); err == nil || !strings.Contains(err.Error(), "config migrate") {
		t.Errorf("alone: %v", err)
	}
}

func (h *host) remove(name string) {
	h.t.Helper()
	if err := os.Remove(filepath.Join(h.root, name)); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) exists(name string) bool { return node{root: h.root}.exists(name) }
