package containerd

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
)

// saving gives a test a daemon whose pods can be saved.
func saving(t *testing.T, extra string, run func(context.Context, *testing.T, *harness.Daemon)) {
	t.Helper()
	needVM(t)
	newestOwn(t, func(o *harness.Options) {
		o.Kata.QEMU = o.Layout.SavingQEMU(t)
		o.Kata.Virtiofsd = harness.OwnVirtiofs
		o.Kata.Extra = extra
	}, run)
}

// tally answers each line with how many there were, which it only keeps in its
// memory. Before, it writes the answer to a file that it keeps open.
const tally = `exec 3>>/log; n=0; echo ready; while read line; do n=$((n+1)); echo "$n $line" >&3; echo "$n $line"; done`

// talk is a container that tallies, and its input.
type talk struct {
	*harness.Container
	in io.Writer
}

func (c talk) say(ctx context.Context, t *testing.T, line, want string) {
	t.Helper()
	if _, err := fmt.Fprintln(c.in, line); err != nil {
		t.Fatal(err)
	}
	if err := c.Out.Await(ctx, want); err != nil {
		t.Fatalf("after %q: %v; output: %q", line, err, c.Out.String())
	}
}

// counting starts one.
func counting(ctx context.Context, t *testing.T, d *harness.Daemon, spec ...oci.SpecOpts) talk {
	t.Helper()
	stdin, in := io.Pipe()
	c, err := d.Create(ctx, harness.ContainerConfig{Name: "saved", Args: script(tally), Stdio: harness.Stdio{Stdin: stdin}, Spec: spec})
	return started(ctx, t, c, err, in)
}

// started starts it.
func started(ctx context.Context, t *testing.T, c *harness.Container, err error, in *io.PipeWriter) talk {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		removed(t, "container", c.Remove)
	})
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	return talk{c, in}
}

// A container is saved and runs on; others continue from what was saved, each by
// itself, with the memory, the open files and the processes of then.
func TestCheckpoint(t *testing.T) {
	saving(t, "", func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := counting(ctx, t, d)
		c.say(ctx, t, "a", "1 a")
		image, err := c.Checkpoint(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		c.say(ctx, t, "b", "2 b")
		works(ctx, t, c.Container, "test $(cat /log | wc -l) = 2")
		for _, name := range []string{"one", "two"} {
			stdin, in := io.Pipe()
			box, err := d.Restore(ctx, name, image, harness.Stdio{Stdin: stdin})
			r := started(ctx, t, box, err, in)
			r.say(ctx, t, name, "2 "+name)
			if log := execOut(ctx, t, r.Container, harness.ExecConfig{Args: []string{"cat", "/log"}}); log != "1 a\n2 "+name+"\n" {
				t.Errorf("the restored container has written %q", log)
			}
			if out := r.Out.String(); strings.Contains(out, "ready") {
				t.Errorf("output of before the checkpoint was repeated: %q", out)
			}
		}
		c.say(ctx, t, "c", "3 c")
	})
}

// A copy can be saved and continued from, too, with its input: so can memory that
// was plugged, and with a key none of that is readable in the checkpoint.
func TestCheckpointOfCopy(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("0123456789abcdef", 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	saving(t, fmt.Sprintf("[runtime]\ncheckpoint_key_file = %q\n", key), func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := counting(ctx, t, d, withMemory(400<<20))
		c.say(ctx, t, "a", "1 a")
		sum := execOut(ctx, t, c.Container, harness.ExecConfig{Args: script(filled)})
		total := execOut(ctx, t, c.Container, harness.ExecConfig{Args: script("grep MemTotal /proc/meminfo")})
		for n, name := range []string{"first", "second", "third"} {
			image, err := c.Checkpoint(ctx, true)
			if err != nil {
				t.Fatal(err)
			}
			wantCode(ctx, t, &c.Process, 137)
			stdin, in := io.Pipe()
			box, err := d.Restore(ctx, name, image, harness.Stdio{Stdin: stdin})
			c = started(ctx, t, box, err, in)
			c.say(ctx, t, name, fmt.Sprint(n+2, " ", name))
			if now := execOut(ctx, t, c.Container, harness.ExecConfig{Args: script("md5sum </dev/shm/f")}); now != sum {
				t.Errorf("the memory has changed: %q, want %q", now, sum)
			}
			if now := execOut(ctx, t, c.Container, harness.ExecConfig{Args: script("grep MemTotal /proc/meminfo")}); now != total {
				t.Errorf("the guest has %q, had %q", now, total)
			}
			t.Logf("guest's memory on the host: %d MiB", guestMemory(t, d)>>20)
		}
	})
}

// What continues from a saved container has its own spec's limits in the guest,
// and the saved one's where its spec sets none. Limits that the kernel refuses fail it.
func TestCheckpointLimits(t *testing.T) {
	const limits = "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/memory.max"
	limit := func(pids, memory int64) oci.SpecOpts {
		return withLimits(func(r *specs.LinuxResources) {
			r.Pids, r.Memory = nil, nil
			if pids > 0 {
				r.Pids = &specs.LinuxPids{Limit: &pids}
			}
			if memory > 0 {
				r.Memory = &specs.LinuxMemory{Limit: &memory}
			}
		})
	}
	saving(t, "", func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := counting(ctx, t, d, withCgroups, limit(50, 64<<20))
		c.say(ctx, t, "a", "1 a")
		image, err := c.Checkpoint(ctx, true)
		if err != nil {
			t.Fatal(err)
		}
		wantCode(ctx, t, &c.Process, 137)
		for _, tc := range []struct {
			name         string
			pids, memory int64
			want         string
		}{
			{"more", 70, 400 << 20, "70\n419430400\n"},
			{"less", 40, 32 << 20, "40\n33554432\n"},
			{"pids", 60, 0, "60\n67108864\n"},
			{"none", 0, 0, "50\n67108864\n"},
		} {
			stdin, in := io.Pipe()
			box, err := d.Restore(ctx, tc.name, image, harness.Stdio{Stdin: stdin}, limit(tc.pids, tc.memory))
			r := started(ctx, t, box, err, in)
			r.say(ctx, t, "b", "2 b")
			if got := execOut(ctx, t, r.Container, harness.ExecConfig{Args: script(limits)}); got != tc.want {
				t.Errorf("%s: the limits are %q, want %q", tc.name, got, tc.want)
			}
		}
		wrong := withLimits(func(r *specs.LinuxResources) { r.Unified = map[string]string{"memory.high": "much"} })
		_, err = d.Restore(ctx, "wrong", image, harness.Stdio{}, wrong)
		wantError(t, err, "limits: set the limits of its spec", "memory.high")
	})
}

// What cannot be saved is refused, with what it is, and runs on; so is what cannot be
// restored.
func TestCheckpointRefused(t *testing.T) {
	saving(t, "", func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		c := counting(ctx, t, d)
		refused := func(what, want string) {
			t.Helper()
			if _, err := c.Checkpoint(ctx, true); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", what, err, want)
			}
			c.say(ctx, t, what, what)
		}
		works(ctx, t, c.Container, "touch /unlinked; sleep 1000 </unlinked >/dev/null 2>&1 & echo $! >/pid; sleep 1; rm /unlinked")
		refused("a file without a name", "/unlinked")
		works(ctx, t, c.Container, "kill $(cat /pid)")
		e, err := c.Exec(ctx, harness.ExecConfig{Args: []string{"sleep", "1000"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(d.Context(ctx)); err != nil {
			t.Fatal(err)
		}
		refused("an exec", "exec e")
		removed(t, "exec", func(ctx context.Context) error { return e.Remove(d.Context(ctx)) })

		image, err := c.Checkpoint(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		mount := oci.WithMounts([]specs.Mount{{Destination: "/more", Type: "bind", Source: t.TempDir(), Options: []string{"rbind"}}})
		if _, err := d.Restore(ctx, "other", image, harness.Stdio{}, mount); err == nil || !strings.Contains(err.Error(), "/more") {
			t.Errorf("with another mount: %v", err)
		}
		if _, err := d.Restore(ctx, "tty", image, harness.Stdio{TTY: true}); err == nil || !strings.Contains(err.Error(), "terminal") {
			t.Errorf("with a terminal: %v", err)
		}
	})
}

// A pod whose memory is its template's is saved, too, and what continues from it has
// its memory for itself.
func TestCheckpointFromTemplate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "templates")
	saving(t, fmt.Sprintf("[factory]\nenable_template = true\ntemplate_path = %q\n", dir), func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		t.Cleanup(func() { destroyTemplates(t, d, dir) })
		makeTemplate(ctx, t, d)
		c := counting(ctx, t, d)
		c.say(ctx, t, "a", "1 a")
		image, err := c.Checkpoint(ctx, false)
		if err != nil {
			t.Fatal(err)
		}
		c.say(ctx, t, "b", "2 b")
		stdin, in := io.Pipe()
		box, err := d.Restore(ctx, "copy", image, harness.Stdio{Stdin: stdin})
		r := started(ctx, t, box, err, in)
		r.say(ctx, t, "c", "2 c")
		c.say(ctx, t, "d", "3 d")
	})
}

// The host's ends are final while a container is saved.
func TestCheckpointIsKilled(t *testing.T) {
	saving(t, "", func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		for _, kind := range []string{harness.KindShim, harness.KindVMM} {
			recorder := d.Record(ctx)
			c := counting(ctx, t, d, withMemory(400<<20))
			execOut(ctx, t, c.Container, harness.ExecConfig{Args: script(filled)})
			saved := make(chan error, 1)
			go func() {
				_, err := c.Checkpoint(ctx, false)
				saved <- err
			}()
			time.Sleep(300 * time.Millisecond) // it takes longer
			killOne(t, d, kind)
			if err := <-saved; err == nil {
				t.Errorf("%s: saved all the same", kind)
			}
			if _, err := recorder.Await(ctx, c.Box.ID(), "exit"); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			if kind == harness.KindShim { // containerd removes the task itself
				if _, err := recorder.Await(ctx, c.Box.ID(), "delete"); err != nil {
					t.Error(err)
				}
			}
			removed(t, "container", c.Remove)
			recorder.Close()
		}
	})
}

// ctr's commands save and restore a container that has no client.
func TestCtrCheckpoint(t *testing.T) {
	saving(t, "", func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		ctr := func(args ...string) {
			t.Helper()
			if out, err := d.Ctr(ctx, args...); err != nil {
				t.Fatalf("ctr %v: %v: %s", args, err, out)
			}
		}
		job, copied := d.NewID("job"), d.NewID("copy")
		for _, id := range []string{job, copied} {
			t.Cleanup(func() {
				out, err := d.Ctr(context.WithoutCancel(ctx), "task", "rm", "--force", id)
				if err == nil {
					out, err = d.Ctr(context.WithoutCancel(ctx), "containers", "rm", id)
				}
				if err != nil {
					t.Errorf("remove %s: %v: %s", id, err, out)
				}
			})
		}
		ctr("run", "-d", "--runtime", d.Runtime().Type, image.Busybox, job, "sh", "-c", "n=0; while sleep 0.1; do echo $((n=n+1)) >>/count; done")
		ctr("containers", "checkpoint", "--task", "--rw", "--image", job, "saved")
		ctr("containers", "restore", "--live", "--rw", copied, "saved")
		for _, id := range []string{job, copied} {
			out, err := d.Ctr(ctx, "task", "exec", "--exec-id", "e1", id, "sh", "-c", "a=$(tail -n 1 /count); sleep 1; cp /count /c; b=$(tail -n 1 /c); test $b -gt $a && test $b -gt 3 && test $b = $(wc -l </c) && echo counts")
			if err != nil || !strings.Contains(out, "counts") {
				t.Errorf("%s: %v: %s", id, err, out)
			}
		}
	})
}
