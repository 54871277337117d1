package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/virtcontainers"
)

// hibernating gives a test a daemon whose pods have memory that can be saved to
// disk, and the directory for that.
func hibernating(t *testing.T, change func(*harness.Options), run func(ctx context.Context, t *testing.T, d *harness.Daemon, dir string)) {
	t.Helper()
	needVM(t)
	base, err := os.MkdirTemp("/var/tmp", "kb") //nolint:usetesting // t.TempDir may be in memory
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	dir := filepath.Join(base, "memory")
	newestOwn(t, func(o *harness.Options) {
		change(o)
		o.Kata.Extra += fmt.Sprintf("[runtime]\nhibernate_path = %q\n", dir)
	}, func(ctx context.Context, t *testing.T, d *harness.Daemon) { run(ctx, t, d, dir) })
}

// hibernate has the pod hibernate.
func hibernate(ctx context.Context, t *testing.T, d *harness.Daemon, id string) virtcontainers.Hibernation {
	t.Helper()
	cmd := kataRuntime(ctx, d, "hibernate", "--json", id)
	var words strings.Builder
	cmd.Stderr = &words
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kata-runtime hibernate: %v: %s", err, &words)
	}
	var h virtcontainers.Hibernation
	if err := json.Unmarshal(out, &h); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return h
}

// hibernates reports whether the pod hibernates.
func hibernates(ctx context.Context, t *testing.T, d *harness.Daemon, id string) bool {
	t.Helper()
	out, err := kataRuntime(ctx, d, "pods", "--json").Output()
	if err != nil {
		t.Fatalf("kata-runtime pods: %v", err)
	}
	var pods []virtcontainers.Description
	if err := json.Unmarshal(out, &pods); err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if p.ID == id {
			return p.Hibernation != nil
		}
	}
	t.Fatalf("pod %s is not among %s", id, out)
	return false
}

// guestMemory is how many bytes of the host's memory the only pod's guest has,
// without those of its template.
func guestMemory(t *testing.T, d *harness.Daemon) (bytes int64) {
	t.Helper()
	bytes = changedMemory(t, d)
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", qemuOf(t, d)))
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		target, _ := os.Readlink(fd)
		if !strings.HasPrefix(target, "/memfd:memory-backend") {
			continue
		}
		info, err := os.Stat(fd)
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
	}
	return bytes
}

// changedMemory is how many bytes the only pod's guest has changed of its
// template's (proc_pid_smaps(5)).
func changedMemory(t *testing.T, d *harness.Daemon) (bytes int64) {
	t.Helper()
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", qemuOf(t, d)))
	if err != nil {
		t.Fatal(err)
	}
	inTemplate := false
	for line := range strings.Lines(string(smaps)) {
		if strings.Contains(strings.Fields(line)[0], "-") { // a mapping's first line
			inTemplate = strings.Contains(line, "/memfd:katabox-template-")
		}
		kib := int64(0)
		if _, err := fmt.Sscanf(line, "Anonymous: %d kB", &kib); inTemplate && err == nil {
			bytes += kib << 10
		}
	}
	return bytes
}

// filled is what a container puts into its memory.
const filled = "dd if=/dev/urandom of=/dev/shm/f bs=1M count=48 2>/dev/null && md5sum </dev/shm/f"

// A pod hibernates: its memory is the host's again, questions about it do not wake
// it, and an exec finds everything as it was.
func TestHibernation(t *testing.T) {
	hibernating(t, func(*harness.Options) {}, testHibernation)
}

// The same with other processes that have mapped the guest's memory, and with
// memory of which the guest has only a part.
func TestHibernationOfOtherMemory(t *testing.T) {
	for name, change := range map[string]func(*harness.Options){
		"virtiofsd":  func(o *harness.Options) { withVirtiofsd(t)(o) },
		"virtio-mem": func(o *harness.Options) { o.Kata.Extra = "enable_virtio_mem = true\n" },
	} {
		t.Run(name, func(t *testing.T) { hibernating(t, change, testHibernation) })
	}
}

// A pod from a template saves what it has changed, and shares the rest as before.
func TestHibernationFromTemplate(t *testing.T) {
	templates := filepath.Join(t.TempDir(), "templates")
	hibernating(t, func(o *harness.Options) { useTemplates(o, templates) }, func(ctx context.Context, t *testing.T, d *harness.Daemon, dir string) {
		t.Cleanup(func() { destroyTemplates(t, d, templates) })
		key := makeTemplate(ctx, t, d)
		mark := d.LogSize()
		testHibernation(ctx, t, d, dir)
		awaitLog(ctx, t, d, mark, "template="+key)
	})
}

func testHibernation(ctx context.Context, t *testing.T, d *harness.Daemon, dir string) {
	pod := newPod(ctx, t, d)
	id := pod.Sandbox.Box.ID()
	stdin, typed := io.Pipe()
	t.Cleanup(func() { _ = typed.Close() })
	c := add(ctx, t, pod, harness.ContainerConfig{
		Name: "echo", Args: script("echo ready; exec cat"), Stdio: harness.Stdio{Stdin: stdin},
	})
	if err := c.Out.Await(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	big := add(ctx, t, pod, harness.ContainerConfig{Name: "big", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{withMemory(200 << 20)}})
	sum := execOut(ctx, t, big, harness.ExecConfig{Args: script(filled)})
	before := guestMemory(t, d)
	qemu := pssOf(t, qemuOf(t, d))

	h := hibernate(ctx, t, d, id)
	t.Logf("%d MiB of memory in %d MiB on disk; QEMU's PSS was %d MiB and is %d, the shim's is %d",
		h.MemoryBytes>>20, h.ImageBytes>>20, qemu>>10, pssOf(t, qemuOf(t, d))>>10, shimPSS(t, d)>>10)
	if after := guestMemory(t, d); before < 64<<20 || after != 0 || h.MemoryBytes < 64<<20 || h.ImageBytes == 0 {
		t.Errorf("the guest had %d bytes of the host's memory, and has %d; %d are said to be on disk", before, after, h.MemoryBytes)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the image has a name: %v, %v", left, err)
	}
	for range 2 {
		if _, err := c.Task.Metrics(d.Context(ctx)); err != nil {
			t.Errorf("metrics: %v", err)
		}
		if status, err := c.Task.Status(d.Context(ctx)); err != nil || status.Status != client.Running {
			t.Errorf("status: %v, %v", status, err)
		}
	}
	time.Sleep(2 * time.Second) // for the clock to be wrong
	if !hibernates(ctx, t, d, id) {
		t.Error("the pod was woken")
	}

	words := strings.Fields(execOut(ctx, t, big, harness.ExecConfig{Args: script("md5sum </dev/shm/f; date +%s")}))
	if now := fmt.Sprint(time.Now().Unix() - 1); len(words) != 3 || words[2] < now {
		t.Errorf("the sum and the guest's time are %v, want %s at least", words, now)
	} else if words[0] != strings.Fields(sum)[0] {
		t.Errorf("the memory has changed: %v, want %s", words, sum)
	}
	if hibernates(ctx, t, d, id) {
		t.Error("the pod still hibernates")
	}
	if _, err := typed.Write([]byte("typed\n")); err != nil {
		t.Fatal(err)
	}
	if err := c.Out.Await(ctx, "typed"); err != nil {
		t.Errorf("the input from before does not work: %v", err)
	}
	works(ctx, t, big, "echo x >/written && cat /written && ls -lR / >/dev/null 2>&1; true")

	hibernate(ctx, t, d, id)
	removed(t, "pod", pod.Remove)
}

// The host's ends are final while a pod hibernates.
func TestHibernatingPodIsKilled(t *testing.T) {
	hibernating(t, func(*harness.Options) {}, func(ctx context.Context, t *testing.T, d *harness.Daemon, _ string) {
		for _, kind := range []string{harness.KindShim, harness.KindVMM} {
			recorder := d.Record(ctx)
			pod := newPod(ctx, t, d)
			c := idle(ctx, t, pod)
			hibernate(ctx, t, d, pod.Sandbox.Box.ID())
			killOne(t, d, kind)
			// containerd notes the end of the shim's connection for each container.
			for _, id := range []string{c.Box.ID(), pod.Sandbox.Box.ID()} {
				if _, err := recorder.Await(ctx, id, "exit"); err != nil {
					t.Errorf("%s: %s: %v", kind, id, err)
				}
			}
			removed(t, "pod", pod.Remove)
			recorder.Close()
		}
	})
}
