package installer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A pod that starts while the handler is being removed keeps its files; uninstall can
// be run again once it has ended.
func TestUninstallWhileAPodStarts(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	before := h.tree()
	version := h.install(newBuild(t, "shim")).Version
	o := h.options("")
	o.run = func(ctx context.Context, program string, args ...string) ([]byte, error) {
		if program == "systemctl" {
			h.file("proc/42/cmdline", versionsDir+"/"+version+"/bin/"+shimName+"\x00", 0o644)
		}
		return h.run(ctx, program, args...)
	}
	if _, err := Uninstall(t.Context(), o); err == nil || !strings.Contains(err.Error(), "pods run on the node") ||
		!strings.Contains(err.Error(), "kata-runtime factory destroy") { // spares are such processes too
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(filepath.Join(h.root, versionsDir, version, "bin", shimName)); err != nil {
		t.Errorf("the pod's shim: %v", err)
	}
	if strings.Contains(h.read("etc/containerd/config.toml"), "katabox") {
		t.Error("the handler is still there: pods can start")
	}
	if err := os.RemoveAll(filepath.Join(h.root, "proc/42")); err != nil {
		t.Fatal(err)
	}
	h.uninstall()
	after := h.tree()
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s is left", name)
		}
	}
}

// Spares do not keep the node from being uninstalled: they are ended, and templates are
// removed, when no pod can make them again.
func TestUninstallDestroysSparesAndTemplates(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	before := h.tree()
	version := h.install(newBuild(t, "shim")).Version
	h.file("run/vc/vm/template/memory", "", 0o600)
	h.process(42, versionsDir+"/"+version+"/bin/"+shimName)
	h.process(43, "/usr/bin/qemu-system-x86_64") // outside a jail
	h.file("proc/43/cmdline", "qemu\x00-kernel\x00"+versionsDir+"/"+version+"/share/kata-containers/vmlinux\x00", 0o644)
	h.file("proc/43/status", "Name:\tqemu\nPid:\t43\nPPid:\t42\n", 0o644)
	o := h.options("")
	if _, err := Uninstall(t.Context(), o); err == nil || !strings.Contains(err.Error(), "2 processes") {
		t.Fatalf("without a factory: %v", err)
	}
	o.Factory = Factory{
		Spares: func(file string, _ Node) ([]int, error) {
			if want := filepath.Join(h.root, versionsDir, version, buildConfig); file != want {
				t.Errorf("the spares' configuration is %s, want %s", file, want)
			}
			return []int{42}, nil
		},
		Destroy: func(file string, on Node) (string, error) {
			if strings.Contains(h.read("etc/containerd/config.toml"), "katabox") || h.restarts() != "containerd" {
				t.Error("pods can still start")
			}
			if want := filepath.Join(h.root, versionsDir, version, buildConfig); file != want {
				t.Errorf("the configuration is %s, want %s", file, want)
			}
			dir, err := on.Path("/run/vc")
			return "", errors.Join(err, os.RemoveAll(dir), os.RemoveAll(filepath.Join(h.root, "proc/42")), os.RemoveAll(filepath.Join(h.root, "proc/43")))
		},
	}
	h.ran = nil
	if _, err := Uninstall(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, h.tree()); diff != "" {
		t.Errorf("after uninstall (-want +got):\n%s", diff)
	}
}

// A template that cannot be removed is named, and stays only if that is forced.
func TestUninstallNamesWhatItCannotRemove(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	h.install(newBuild(t, "shim"))
	o := h.options("")
	o.Factory.Destroy = func(string, Node) (string, error) { return "", errors.New("unlinkat /run/vc/vm/template/memory: busy") }
	if _, err := Uninstall(t.Context(), o); err == nil || !strings.Contains(err.Error(), "/run/vc/vm/template/memory") || !h.exists(Home) {
		t.Errorf("error %v", err)
	}
	o.Force = true
	if _, err := Uninstall(t.Context(), o); err != nil || h.exists(Home) {
		t.Errorf("forced: %v", err)
	}
}

// What is left for a reason that no further uninstall changes is said, and the node is
// uninstalled.
func TestUninstallSaysWhatItLeaves(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	before := h.tree()
	h.install(newBuild(t, "shim"))
	o := h.options("")
	o.Factory.Destroy = func(string, Node) (string, error) { return "templates are left", nil }
	var said []string
	o.Say = func(line string) { said = append(said, line) }
	if _, err := Uninstall(t.Context(), o); err != nil || !slices.Contains(said, "templates are left") {
		t.Errorf("%v, %q", err, said)
	}
	if diff := cmp.Diff(before, h.tree()); diff != "" {
		t.Errorf("after uninstall (-want +got):\n%s", diff)
	}
}
