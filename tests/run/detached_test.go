package run

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Logs are followed until the container ends, even if it does not end cleanly.
func TestFollow(t *testing.T) {
	ctx := testContext(t)
	name := newName(t)
	call(ctx, t, "", "run", "-d", "--name", name, "--network", "none", bed.images.layout,
		"sh", "-c", "for i in 1 2 3; do echo $i; sleep 0.2; done; printf 4; exit 6").must(t, 0, name+"\n")
	call(ctx, t, "", "logs", "-f", name).want(t, 0, "1\n2\n3\n4")
	call(ctx, t, "", "rm", "-f", name).want(t, 0, "")
}

// In the background -i keeps the input open and empty, so that a shell stays.
func TestDetachedInput(t *testing.T) {
	ctx := testContext(t)
	for _, flags := range []string{"-di", "-dit"} {
		name := newName(t)
		call(ctx, t, "", "run", flags, "--name", name, "--network", "none", bed.images.layout, "sh").must(t, 0, name+"\n")
		call(ctx, t, "", "exec", name, "echo", "up").want(t, 0, "up\n")
		call(ctx, t, "", "rm", "-f", name).want(t, 0, "")
	}
}

// enginePID returns the process that runs a container.
func enginePID(t *testing.T, name string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(bed.store, "containers", name, "record.json"))
	if err != nil {
		t.Fatal(err)
	}
	var record struct {
		Engine struct {
			PID int `json:"pid"`
		} `json:"engine"`
	}
	if err := json.Unmarshal(data, &record); err != nil || record.Engine.PID == 0 {
		t.Fatalf("record %s: %v", data, err)
	}
	return record.Engine.PID
}

// When the process that runs a container ends, in whatever way, the container
// ends too.
func TestEngineIsKilled(t *testing.T) {
	ctx := testContext(t)
	kept, removed := newName(t), newName(t)
	call(ctx, t, "", "run", "-d", "--name", kept, bed.images.layout, "sleep", "1000").must(t, 0, kept+"\n")
	call(ctx, t, "", "run", "-d", "--rm", "--name", removed, bed.images.layout, "sleep", "1000").must(t, 0, removed+"\n")
	for _, name := range []string{kept, removed} {
		if err := unix.Kill(enginePID(t, name), unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	machines := func() bool {
		for _, pid := range tagged() {
			if exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); strings.Contains(exe, "qemu") {
				return true
			}
		}
		return false
	}
	if !eventually(ctx, func() bool { return !machines() }) {
		t.Error("the machines still run")
	}
	if r := call(ctx, t, "", "ps"); !strings.Contains(r.out, "dead") {
		t.Errorf("ps: %s%s", r.out, r.errOut)
	}
	call(ctx, t, "", "exec", kept, "id").says(t, 125, "dead")
	call(ctx, t, "", "stop", kept).says(t, 125, "is dead")
	call(ctx, t, "", "rm", kept).want(t, 0, "")
	// The next run removes what --rm would have removed.
	call(ctx, t, "", "run", "--rm", "--network", "none", "--name", newName(t), bed.images.layout, "true").want(t, 0, "")
}

// Layers are removed with their last user.
func TestLayersAreFreed(t *testing.T) {
	ctx := testContext(t)
	call(ctx, t, "", "run", "--rm", "--network", "none", "--name", newName(t), bed.images.registry, "true").want(t, 0, "")
	bed.images.away.Store(true)
	defer bed.images.away.Store(false)
	call(ctx, t, "", "run", "--rm", "--network", "none", "--name", newName(t), bed.images.registry, "true").want(t, 0, "")
	call(ctx, t, "", "run", "--pull", "always", bed.images.registry, "true").says(t, 125, "pull: ")
	call(ctx, t, "", "rm", "--images").want(t, 0, "")
	if left, err := os.ReadDir(filepath.Join(bed.store, "layers")); err != nil || len(left) != 0 {
		t.Errorf("layers: %v, %v", left, err)
	}
}
