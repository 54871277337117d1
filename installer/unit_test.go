package installer

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
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

// A containerd that reads another file would never know the handler; one that runs
// beside the node's own, as Docker's may, does not matter.
func TestContainerdWithAnotherFile(t *testing.T) {
	for name, test := range map[string]struct {
		commands [][]string // by exe and arguments
		refused  string
	}{
		"NixOS":         {[][]string{{"/nix/store/a/bin/containerd", "/nix/store/a/bin/containerd", "--config", "/nix/store/x.toml"}}, "/nix/store/x.toml and not " + containerdConfig},
		"k3s":           {[][]string{{"/var/lib/rancher/k3s/data/1/bin/k3s", "containerd", "-c", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"}}, "/var/lib/rancher/k3s"},
		"joined":        {[][]string{{"/usr/bin/containerd", "containerd", "--config=/x.toml"}}, "/x.toml"},
		"the default":   {[][]string{{"/usr/bin/containerd", "containerd", "--log-level", "debug"}}, ""},
		"named":         {[][]string{{"/usr/bin/containerd (deleted)", "containerd", "-c", containerdConfig}}, ""},
		"by a link":     {[][]string{{"/usr/bin/containerd", "containerd", "-c", "/conf/config.toml"}}, ""},
		"another shim":  {[][]string{{"/usr/bin/containerd-shim-runc-v2", "containerd-shim-runc-v2", "-c", "/x.toml"}}, ""},
		"Docker's, too": {[][]string{{"/usr/bin/containerd", "containerd", "--config", "/run/docker/c.toml"}, {"/usr/bin/containerd", "containerd"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, nodes["containerd 2.x"])
			if err := os.Symlink("/etc/containerd", filepath.Join(h.root, "conf")); err != nil {
				t.Fatal(err)
			}
			for i, command := range test.commands {
				h.process(42+i, command[0])
				h.file("proc/"+strconv.Itoa(42+i)+"/cmdline", strings.Join(command[1:], "\x00")+"\x00", 0o644)
			}
			before := h.tree()
			_, err := Install(t.Context(), h.options(newBuild(t, "shim")))
			if test.refused == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("error %v, want %q in it", err, test.refused)
			}
			if diff := cmp.Diff(before, h.tree()); diff != "" {
				t.Errorf("it changed (-want +got):\n%s", diff)
			}
		})
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
		if _, err := Install(t.Context(), o); err != nil {
			t.Fatal(err)
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
