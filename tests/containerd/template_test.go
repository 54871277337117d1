package containerd

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/containers"
	"github.com/containerd/containerd/v2/pkg/oci"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// withTemplates gives a test a daemon whose pods start from templates, of which
// there is none yet, and calls run with their directory.
func withTemplates(t *testing.T, run func(ctx context.Context, t *testing.T, d *harness.Daemon, dir string)) {
	t.Helper()
	needVM(t)
	dir := filepath.Join(t.TempDir(), "templates")
	newestOwn(t, func(o *harness.Options) { useTemplates(o, dir) }, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		t.Cleanup(func() { destroyTemplates(t, d, dir) })
		run(ctx, t, d, dir)
	})
}

func useTemplates(o *harness.Options, dir string) {
	o.Kata.Extra = fmt.Sprintf("[factory]\nenable_template = true\ntemplate_path = %q\n", dir)
}

// makeTemplate makes the template, and returns its key.
func makeTemplate(ctx context.Context, t *testing.T, d *harness.Daemon) string {
	t.Helper()
	cmd := kataRuntime(ctx, d, "factory", "init", "--config", d.KataConfigPath())
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kata-runtime factory init: %v\n%s", err, &words)
	}
	return strings.TrimSpace(string(out))
}

// startIdle starts a container in a new pod, and returns the template from
// which the machine started: "" if it booted.
func startIdle(ctx context.Context, t *testing.T, d *harness.Daemon, spec ...oci.SpecOpts) (c *harness.Container, template string) {
	t.Helper()
	mark := d.LogSize()
	c, err := d.Create(ctx, harness.ContainerConfig{Name: "clone", Args: script("echo up; exec sleep 100000"), Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removed(t, "container", c.Remove) })
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Out.Await(ctx, "up"); err != nil {
		t.Fatal(err)
	}
	booted := ""
	for line := range strings.Lines(d.LogSince(mark, 100000)) {
		if strings.Contains(line, "sandbox booted") {
			booted = line
		}
	}
	_, template, found := strings.Cut(booted, "template=")
	if !found {
		t.Fatalf("the log does not say where the machine came from: %q", booted)
	}
	template, _, _ = strings.Cut(template, " ")
	return c, strings.Trim(template, `"`)
}

// drawn returns random numbers from a guest, and other values that must differ
// between two guests, by name.
func drawn(ctx context.Context, t *testing.T, c *harness.Container) map[string]string {
	t.Helper()
	const questions = `
		echo "getrandom $(od -An -v -tx1 -N32 /dev/urandom | tr -d ' \n')"
		echo "uuid $(cat /proc/sys/kernel/random/uuid)"
		echo "boot_id $(cat /proc/sys/kernel/random/boot_id)"
		echo "aslr $(sed -n 's/-.*\[stack\]//p' /proc/self/maps | head -1)"
		echo "auxv $(od -An -v -tx1 /proc/self/auxv | md5sum)"`
	all := make(map[string]string)
	for line := range strings.Lines(execOut(ctx, t, c, harness.ExecConfig{Args: script(questions)})) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[name] = value
	}
	return all
}

// Pods that start from one template are independent: their random numbers
// differ, their clocks are right, and everything that a pod can do works.
func TestTemplate(t *testing.T) {
	withTemplates(t, func(ctx context.Context, t *testing.T, d *harness.Daemon, _ string) {
		key := makeTemplate(ctx, t, d)
		seen := make(map[string]string)
		for i := range 3 {
			volume := t.TempDir()
			const limit = 400 << 20 // more than the machine has: memory is plugged
			c, template := startIdle(ctx, t, d, withBind(volume, "/volume"), oci.WithMemoryLimit(limit), oci.WithHostname("clone"+strconv.Itoa(i)))
			if template != key {
				t.Fatalf("the pod's template is %q, want %q; log:\n%s", template, key, d.LogTail(40))
			}
			for name, value := range drawn(ctx, t, c) {
				if value == "" {
					t.Errorf("pod %d has no %s", i, name)
				}
				if other, again := seen[name+" "+value]; again {
					t.Errorf("pods %s and %d have the same %s: %s", other, i, name, value)
				}
				seen[name+" "+value] = strconv.Itoa(i)
			}
			before := time.Now().Unix()
			now, err := strconv.ParseInt(strings.TrimSpace(execOut(ctx, t, c, harness.ExecConfig{Args: []string{"date", "+%s"}})), 10, 64)
			if err != nil || now < before-1 || now > time.Now().Unix()+1 {
				t.Errorf("the guest's clock shows %d, the host's %d, %v", now, before, err)
			}
			if name := strings.TrimSpace(execOut(ctx, t, c, harness.ExecConfig{Args: []string{"hostname"}})); name != "clone"+strconv.Itoa(i) {
				t.Errorf("hostname %q", name)
			}
			execOut(ctx, t, c, harness.ExecConfig{Args: script("echo guest > /volume/file && dd if=/dev/zero of=/dev/shm/x bs=1M count=40 2>/dev/null")})
			if text, err := os.ReadFile(filepath.Join(volume, "file")); string(text) != "guest\n" || err != nil {
				t.Errorf("the volume has %q, %v", text, err)
			}
			if _, code, err := c.ExecRun(ctx, harness.ExecConfig{Args: script("exit 7")}); code != 7 || err != nil {
				t.Errorf("exec ended with %d, %v", code, err)
			}
		}
	})
}

// keeperOf waits for the process that keeps the template's memory.
func keeperOf(ctx context.Context, t *testing.T, d *harness.Daemon) int {
	t.Helper()
	state := awaitFactory(ctx, t, d, "the keeper", func(s factoryState) bool { return len(s.Templates) == 1 && s.Templates[0].Keeper != 0 })
	return state.Templates[0].Keeper
}

// sealedMemory returns the inode of a template's memory that a process has open; 0 for
// none.
func sealedMemory(t *testing.T, pid int) uint64 {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		var st unix.Stat_t
		if to, err := os.Readlink(f); err == nil && strings.Contains(to, "memfd:katabox-template-") && unix.Stat(f, &st) == nil {
			return st.Ino
		}
	}
	return 0
}

// A template's memory stays between pods, with a process that belongs to none: the next
// pod need not copy it. If that process is killed, the next pod does, and has it kept again.
func TestKeeper(t *testing.T) {
	withTemplates(t, func(ctx context.Context, t *testing.T, d *harness.Daemon, dir string) {
		key := makeTemplate(ctx, t, d)
		one := func() (memory uint64) {
			t.Helper()
			c, template := startIdle(ctx, t, d)
			if template != key {
				t.Fatalf("the pod's template is %q, want %q; log:\n%s", template, key, d.LogTail(40))
			}
			shim, err := d.One(harness.KindShim)
			if err != nil {
				t.Fatal(err)
			}
			memory = sealedMemory(t, shim.PID)
			removed(t, "container", c.Remove)
			return memory
		}
		first := one()
		keeper := keeperOf(ctx, t, d)
		place, err := surroundings(keeper)
		want, wantErr := surroundings(d.PID())
		if !maps.Equal(place, want) || err != nil || wantErr != nil {
			t.Errorf("the keeper is in %q, %v, want containerd's %q, %v", place, err, want, wantErr)
		}
		if second := one(); first == 0 || second != first || sealedMemory(t, keeper) != first {
			t.Errorf("memory %d of the first pod, %d of the second, %d of the keeper", first, second, sealedMemory(t, keeper))
		}
		if err := unix.Kill(keeper, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if third := one(); third == 0 || third == first {
			t.Errorf("memory %d of the third pod, the first pod's was %d", third, first)
		}
		keeper = keeperOf(ctx, t, d)
		destroyTemplates(t, d, dir)
		if harness.Runs(keeper) {
			t.Error("the keeper runs after the template's removal")
		}
	})
}

// withBind mounts a directory of the host's.
func withBind(from, to string) oci.SpecOpts {
	return func(_ context.Context, _ oci.Client, _ *containers.Container, spec *oci.Spec) error {
		spec.Mounts = append(spec.Mounts, specs.Mount{Source: from, Destination: to, Type: "bind", Options: []string{"rbind", "rw"}})
		return nil
	}
}

// A pod boots if there is no template for it, if its template is bad, and if it
// does not want one.
func TestTemplateThatDoesNotFit(t *testing.T) {
	withTemplates(t, func(ctx context.Context, t *testing.T, d *harness.Daemon, dir string) {
		mark := d.LogSize()
		if _, template := startIdle(ctx, t, d); template != "" {
			t.Errorf("a pod came from template %q before there was one", template)
		}
		awaitLog(ctx, t, d, mark, "the guest boots: there is no template for it")

		awaitFactory(ctx, t, d, "the template", func(s factoryState) bool { return len(s.Templates) == 1 && s.Maker == 0 })
		key := makeTemplate(ctx, t, d) // it is there
		off := oci.WithAnnotations(map[string]string{"io.katacontainers.config.factory.enable_template": "false"})
		if _, template := startIdle(ctx, t, d, off); template != "" {
			t.Errorf("a pod that wants no template came from %q", template)
		}

		memory, err := os.OpenFile(filepath.Join(dir, key, "memory"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := memory.WriteAt([]byte("damaged"), 16<<20); err != nil {
			t.Fatal(err)
		}
		if err := memory.Close(); err != nil {
			t.Fatal(err)
		}
		mark = d.LogSize()
		if _, template := startIdle(ctx, t, d); template != "" {
			t.Errorf("a pod came from a damaged template")
		}
		awaitLog(ctx, t, d, mark, "level=warning", "the guest boots, and its template is removed", "is damaged: its checksum is")
		if _, err := os.Stat(filepath.Join(dir, key)); !os.IsNotExist(err) {
			t.Errorf("the damaged template is still there: %v", err)
		}
		if f := factoryStatus(ctx, t, d).Failures; len(f) != 1 || !strings.Contains(f[0].Reason, "is damaged") {
			t.Errorf("the reason is not remembered: %+v", f)
		}
	})
}
