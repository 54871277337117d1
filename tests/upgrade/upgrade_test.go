package upgrade

import (
	"context"
	"os"
	"strings"
	"testing"
)

// A running container keeps its version while another is installed: it keeps
// running, takes execs and is removed, and if its shim dies the new version
// cleans up. New containers get the new version. The old version's files are
// removed when they are unused.
func TestUpgradeBelowARunningContainer(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	before, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	older := install(ctx, t, newBuild(t, "one"))
	startContainerd(ctx, t)
	start(ctx, t, "old")
	start(ctx, t, "lost")
	lost := shims(t, older)["lost"]
	if lost == 0 {
		t.Fatalf("shims that run from %s: %v", older, shims(t, older))
	}

	second := newBuild(t, "two")
	newer := install(ctx, t, second)
	if newer == older {
		t.Fatal("the second version is the first")
	}
	if got := mustCtr(ctx, t, "task", "exec", "--exec-id", "e", "old", "echo", "still here"); got != "still here" {
		t.Errorf("an exec in the old container: %q", got)
	}
	start(ctx, t, "new")
	if shims(t, older)["old"] == 0 || shims(t, newer)["new"] == 0 {
		t.Errorf("shims of the old version: %v; of the new one: %v", shims(t, older), shims(t, newer))
	}
	// The new version cleans up after a dead shim.
	killShim(ctx, t, lost, "lost")
	if out, err := runtime(ctx, "uninstall", "--restart", "never"); err == nil || !strings.Contains(out, "pods run") {
		t.Errorf("uninstall below containers: %v: %s", err, out)
	}

	for _, id := range []string{"lost", "old", "new"} {
		if err := remove(ctx, id); err != nil && id != "lost" { // its task may be gone
			t.Fatal(err)
		}
		if id == "old" {
			install(ctx, t, second)
		}
	}
	if _, err := os.Stat(older); !os.IsNotExist(err) {
		t.Errorf("the old version stays: %v", err)
	}
	if out, err := runtime(ctx, "uninstall", "--restart", "never"); err != nil {
		t.Errorf("uninstall: %v: %s", err, out)
	}
	after, err := os.ReadFile(config)
	if err != nil || string(after) != string(before) {
		t.Errorf("containerd's configuration: %v: %q, want %q", err, after, before)
	}
	if _, err := os.Stat("/opt/kata"); !os.IsNotExist(err) {
		t.Errorf("/opt/kata stays: %v", err)
	}
}
