package installer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
