package containerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// The host's changes to a volume's files are visible in a container as with
// runc: at the next access if the guest caches nothing, and after a while if it
// may cache.
func TestHostChangesFiles(t *testing.T) {
	needVM(t)
	var want []string
	for _, mode := range []string{"never", "auto", "always"} {
		t.Run(mode, func(t *testing.T) {
			configure := func(o *harness.Options) { o.Kata.Extra = fmt.Sprintf("virtio_fs_cache = %q\n", mode) }
			newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				if want == nil {
					peer := startPeer(t, d)
					want = changesWithRunc(peer.Context(ctx), t, peer)
				}
				v := newChangedVolume(ctx, t, d)
				defer v.close(ctx, t)
				before := v.look(ctx, t)
				v.change(t)
				for i, got := range v.await(ctx, t, mode, want) {
					row := hostChanges[i]
					switch {
					case mode == "always" && !row.always:
					case got != want[i]:
						t.Errorf("%s: the container sees %q, with runc %q; before it saw %q", row.name, got, want[i], before[i])
					}
				}
			})
		})
	}
}

// changesWithRunc returns what runc's container sees of each change, and checks
// that each is visible.
func changesWithRunc(ctx context.Context, t *testing.T, d *harness.Daemon) []string {
	t.Helper()
	v := newChangedVolume(ctx, t, d)
	defer v.close(ctx, t)
	before := v.look(ctx, t)
	v.change(t)
	after := v.look(ctx, t)
	for i, row := range hostChanges {
		if changed := before[i] != after[i]; changed == row.unchanged {
			t.Fatalf("%s: runc's container sees %q, before it saw %q: the row shows nothing", row.name, after[i], before[i])
		}
		t.Logf("%s: %q", row.name, after[i])
	}
	return after
}

// changedVolume is a directory for each change, and a container that sees all of
// them at /v.
type changedVolume struct {
	dir    string
	c      *harness.Container
	holder *harness.Process
}

// dirOf is a row's directory.
func (v changedVolume) dirOf(i int) string { return filepath.Join(v.dir, fmt.Sprint(i)) }

func newChangedVolume(ctx context.Context, t *testing.T, d *harness.Daemon) changedVolume {
	t.Helper()
	v := changedVolume{dir: t.TempDir()}
	buildProbe(t, v.dir)
	mounts := []specs.Mount{{Type: "bind", Source: v.dir, Destination: "/v", Options: []string{"rbind", "rw"}}}
	var held []string
	for i, row := range hostChanges {
		v.prepare(t, i)
		if strings.Contains(row.look, "held") {
			held = append(held, fmt.Sprintf("/v/%d/f", i))
		}
		if strings.Contains(row.look, "mounted") {
			mounts = append(mounts, specs.Mount{
				Type: "bind", Source: filepath.Join(v.dirOf(i), "f"), Destination: fmt.Sprintf("/mounted/%d", i), Options: []string{"rbind", "rw"},
			})
		}
	}
	v.c = add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
		Name: "looks", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{oci.WithMounts(mounts)},
	})
	v.hold(ctx, t, held)
	return v
}

// prepare makes a row's directory.
func (v changedVolume) prepare(t *testing.T, i int) {
	t.Helper()
	if err := os.Mkdir(v.dirOf(i), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(v.dirOf(i), "f"), "before\n")
	if row := hostChanges[i]; row.make != nil {
		if err := row.make(v.dirOf(i)); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
	}
}

// hold starts a process in the container that has files open.
func (v *changedVolume) hold(ctx context.Context, t *testing.T, files []string) {
	t.Helper()
	text := "mkfifo /tmp/ask /tmp/answer && exec /v/probe hold /tmp/ask /tmp/answer " + strings.Join(files, " ")
	var err error
	if v.holder, err = v.c.Exec(ctx, harness.ExecConfig{Args: script(text)}); err != nil {
		t.Fatal(err)
	}
	if err := v.holder.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := v.holder.Out.Await(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
}

// close ends the process that hold started.
func (v changedVolume) close(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := v.holder.Remove(ctx); err != nil {
		t.Error(err)
	}
}

// buildProbe puts the probe into a directory.
func buildProbe(t *testing.T, dir string) {
	t.Helper()
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", filepath.Join(dir, "probe"), "./tests/network/probe")
	build.Dir, build.Env = bed.layout.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the probe: %v: %s", err, out)
	}
}

// change makes all of the changes on the host.
func (v changedVolume) change(t *testing.T) {
	t.Helper()
	for i, row := range hostChanges {
		if err := row.change(v.dirOf(i)); err != nil {
			t.Fatalf("%s: %v", row.name, err)
		}
	}
}

// look returns what the container sees of each row.
func (v changedVolume) look(ctx context.Context, t *testing.T) []string {
	t.Helper()
	const end = "\n--\n"
	text := "echo > /tmp/ask; cat /tmp/answer > /tmp/report\n" +
		"held() { grep \"^/v/$n/f \" /tmp/report; }\nmounted() { cat /mounted/$n; }\n"
	for i, row := range hostChanges {
		text += fmt.Sprintf("n=%d; cd /v/%d; { %s; } 2>&1; printf '%s'\n", i, i, row.look, strings.ReplaceAll(end, "\n", `\n`))
	}
	seen := strings.Split(execOut(ctx, t, v.c, harness.ExecConfig{Args: script(text)}), end)
	if len(seen) != len(hostChanges)+1 {
		t.Fatalf("%d answers for %d rows: %q", len(seen)-1, len(hostChanges), seen)
	}
	for i := range seen {
		seen[i] = strings.ReplaceAll(strings.TrimSpace(seen[i]), "\n", " / ")
	}
	return seen[:len(hostChanges)]
}

// patience is how long a change may take to be visible before the test fails:
// many times the cache's expiry. However slow the machine is, the container
// looks fewestLooks times.
const (
	patience    = 30 * time.Second
	fewestLooks = 6
)

// await looks until the container sees what is wanted: once if nothing is
// cached. It returns what was last seen.
func (v changedVolume) await(ctx context.Context, t *testing.T, mode string, want []string) []string {
	t.Helper()
	began := time.Now()
	late := map[int]bool{}
	for looks := 1; ; looks++ {
		got := v.look(ctx, t)
		missing := 0
		for i, row := range hostChanges {
			if got[i] != want[i] && (mode != "always" || row.always) {
				missing++
				late[i] = true
			} else if late[i] {
				delete(late, i)
				t.Logf("%s: seen at look %d, %.1f s after the change", row.name, looks, time.Since(began).Seconds())
			}
		}
		if missing == 0 || mode == "never" || looks >= fewestLooks && time.Since(began) > patience {
			return got
		}
	}
}
