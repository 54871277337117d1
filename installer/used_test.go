package installer

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// process adds a process that runs a program.
func (h *host) process(pid int, exe string) {
	h.t.Helper()
	dir := "proc/" + strconv.Itoa(pid)
	h.file(dir+"/cmdline", filepath.Base(exe)+"\x00", 0o644)
	if err := os.Symlink(exe, filepath.Join(h.root, dir, "exe")); err != nil {
		h.t.Fatal(err)
	}
}

// "kata-runtime monitor" of a version that an upgrade removed is not a pod; a shim
// of such a version is.
func TestProgramsOfARemovedVersion(t *testing.T) {
	for program, pod := range map[string]bool{toolName: false, shimName: true} {
		h := newHost(t, nodes["containerd 2.x"])
		h.install(newBuild(t, "shim"))
		h.process(42, versionsDir+"/.old/bin/"+program+" (deleted)")
		if _, err := Uninstall(t.Context(), h.options("")); (err != nil) != pod {
			t.Errorf("uninstall while %s runs: %v", program, err)
		} else if pod && !strings.Contains(err.Error(), "pods run") {
			t.Error(err)
		}
	}
}

// What a killed installer left of a version is removed although one of its shims
// runs: it may lack files.
func TestRemovedVersionIsNotKept(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	build := newBuild(t, "shim")
	h.install(build)
	h.file(versionsDir+"/.old/bin/"+toolName, "", 0o755)
	h.process(42, versionsDir+"/.old/bin/"+shimName+" (deleted)")
	h.install(build)
	if _, err := os.Stat(filepath.Join(h.root, versionsDir, ".old")); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
}

// With /opt/kata on another disk, behind a symbolic link, the kernel names the
// link's target.
func TestVersionsBehindALink(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	if err := os.MkdirAll(filepath.Join(h.root, "data/kata (1)"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/data/kata (1)", filepath.Join(h.root, Home)); err != nil {
		t.Fatal(err)
	}
	older := h.install(newBuild(t, "shim one")).Version
	h.process(42, "/data/kata (1)/versions/"+older+"/bin/"+shimName)
	h.install(newBuild(t, "shim two"))
	if got := h.read("data/kata (1)/versions/" + older + "/bin/" + shimName); got != "shim one" {
		t.Errorf("the running pod has %q", got)
	}
	if _, err := Uninstall(t.Context(), h.options("")); err == nil || !strings.Contains(err.Error(), "pods run") {
		t.Errorf("uninstall while a pod runs: %v", err)
	}
	if err := os.RemoveAll(filepath.Join(h.root, "proc/42")); err != nil {
		t.Fatal(err)
	}
	h.uninstall()
}
