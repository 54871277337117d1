package installer

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// command adds a process: its exe, and then its arguments.
func (h *host) command(pid int, command []string) {
	h.t.Helper()
	h.process(pid, command[0])
	h.file("proc/"+strconv.Itoa(pid)+"/cmdline", strings.Join(command[1:], "\x00")+"\x00", 0o644)
}

// inMounts puts a process into a mount namespace.
func (h *host) inMounts(pid int, namespace string) {
	h.t.Helper()
	dir := filepath.Join(h.root, "proc", strconv.Itoa(pid), "ns")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink("mnt:["+namespace+"]", filepath.Join(dir, "mnt"))); err != nil {
		h.t.Fatal(err)
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
				h.command(42+i, command)
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

const (
	k3sConfig = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"
	k3sDropIn = "/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/kata.toml"
	k3sHeader = "version = 3\nimports = [\"/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml\"]\n"
)

var k3sContainerd = []string{"/var/lib/rancher/k3s/data/1/bin/k3s", "containerd", "-c", k3sConfig}

// Where the handler is in the other file already, the node gets the rest.
func TestHandlerInAnotherFile(t *testing.T) {
	handler := (containerd{handler: "kata"}).table(3)
	for name, test := range map[string]struct {
		files map[string]string
		known bool
	}{
		"in it":           {map[string]string{k3sConfig: "version = 3\n" + handler}, true},
		"version 2":       {map[string]string{k3sConfig: "version = 2\n" + (containerd{handler: "kata"}).table(2)}, true},
		"imported":        {map[string]string{k3sConfig: k3sHeader, k3sDropIn: handler}, true},
		"relative":        {map[string]string{k3sConfig: "version = 3\nimports = ['config-v3.toml.d/kata.toml']\n", k3sDropIn: handler}, true},
		"not imported":    {map[string]string{k3sConfig: "version = 3\n", k3sDropIn: handler}, false},
		"another handler": {map[string]string{k3sConfig: "version = 3\n" + (containerd{handler: "other"}).table(3)}, false},
		"another's path":  {map[string]string{k3sConfig: "version = 3\n" + strings.ReplaceAll(handler, ShimPath, "/usr/bin/kata")}, false},
		"only a comment":  {map[string]string{k3sConfig: "version = 3\n# " + ShimPath + "\n"}, false},
		"an invalid file": {map[string]string{k3sConfig: "version = \n" + handler}, false},
		"no file":         {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(nodes["containerd 2.x"])
			maps.Copy(files, test.files)
			h := newHost(t, files)
			h.command(42, k3sContainerd)
			main := h.read(containerdConfig)
			r, err := Install(t.Context(), h.options(newBuild(t, "shim")))
			if h.read(containerdConfig) != main || h.restarts() != "" {
				t.Error("the file that is not read has changed, or containerd was restarted")
			}
			if !test.known {
				if err == nil || !strings.Contains(err.Error(), k3sConfig) || !strings.Contains(err.Error(), ShimPath) {
					t.Errorf("error %v", err)
				}
				return
			}
			if err != nil || !slices.Equal(r.Engines, []string{"containerd"}) || h.read(ShimPath) != "shim" {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// Docker's containerd reads the installer's file, and starts no pods: those are of the
// one with the other file.
func TestK3sBesideDocker(t *testing.T) {
	docker := []string{"/usr/bin/containerd", "/usr/bin/containerd"}
	h := newHost(t, map[string]string{containerdConfig: "version = 2\ndisabled_plugins = [\"cri\"]\n", "usr/bin/containerd": ""})
	h.command(42, docker)
	h.command(43, k3sContainerd)
	before := h.tree()
	if _, err := Install(t.Context(), h.options(newBuild(t, "shim"))); err == nil || !strings.Contains(err.Error(), k3sConfig+" and not") {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(before, h.tree()); diff != "" {
		t.Errorf("it changed (-want +got):\n%s", diff)
	}
	h.file(k3sConfig, "version = 3\n"+(containerd{handler: "kata"}).table(3), 0o600)
	h.install(newBuild(t, "shim"))
}

// The containerd of a container, as kind's and Docker in Docker's, reads that one's file,
// and a user's starts no pods.
func TestContainerdInAContainer(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	h.inMounts(1, "1")
	h.command(42, k3sContainerd)
	h.inMounts(42, "2")
	h.command(44, []string{"/usr/bin/containerd", "containerd", "-c", "/home/u/x.toml"}) // rootless Docker's
	h.file("proc/44/status", "Name:\tcontainerd\nPid:\t44\nPPid:\t1\nUid:\t1000\t1000\t1000\t1000\n", 0o644)
	h.install(newBuild(t, "shim"))
	h.uninstall()
	h.command(43, []string{"/nix/store/a/bin/containerd", "containerd", "-c", "/nix/store/x.toml"})
	h.inMounts(43, "1")
	if _, err := Install(t.Context(), h.options(newBuild(t, "shim"))); err == nil || !strings.Contains(err.Error(), "/nix/store/x.toml and not") || strings.Contains(err.Error(), k3sConfig) || strings.Contains(err.Error(), "/home") {
		t.Errorf("error %v", err)
	}
}
