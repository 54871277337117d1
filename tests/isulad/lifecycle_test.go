package isulad

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/image"
	"github.com/katabox/katabox/tests/isulad/engine"
)

func blobPart(n int) []byte { return image.Blob()[:n] }

// A container outside any pod: "isula run" in the foreground, then "isula
// start" of the same container, whose bundle has the files of the first run.
func TestRunInForegroundAndStartAgain(t *testing.T) {
	ctx := testContext(t)
	c := create(t, bed.engine, single(script("cat /data/blob; echo last words >&2; exit 7")...))
	for _, stdio := range []engine.Stdio{engine.Foreground, engine.Detached} {
		if err := c.Start(ctx, stdio); err != nil {
			t.Fatal(err)
		}
		wantExit(ctx, t, c, 7)
		if err := c.Console().Wait(ctx); err != nil {
			t.Fatal(err)
		}
		if !stdio.Out {
			continue
		}
		if got := c.Console().Out.String(); got != string(image.Blob()) || c.Console().Err.String() != "last words\n" {
			t.Errorf("%d bytes on stdout, want %d; stderr %q", len(got), image.BlobSize, c.Console().Err.String())
		}
		if err := awaitClean(ctx, c); err != nil {
			t.Error(err)
		}
	}
	once := []string{"Create", "Start", "Wait", "Kill(0) failed", "Delete", "Shutdown"}
	wantCalls(t, c, append(once, once...)...)
}

func TestExec(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, app(sharedPod(ctx, t), "sleep", "1000"), engine.Detached)
	for _, want := range []int32{0, 7} {
		code, console, err := c.Exec(ctx, "sh", "-c", "echo out; echo err >&2; exit "+strconv.Itoa(int(want)))
		if err != nil || code != want {
			t.Errorf("exit code %d, error %v, want %d", code, err, want)
		}
		if console.Out.String() != "out\n" || console.Err.String() != "err\n" {
			t.Errorf("stdout %q, stderr %q", console.Out.String(), console.Err.String())
		}
	}
	t.Run("terminal", func(t *testing.T) {
		x, err := c.StartExec(ctx, true, engine.Attached, "sh", "-c", "read line; test -t 1; echo $? $line; exit 12")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Resize(ctx, x.ID, 20, 60); err != nil {
			t.Error(err)
		}
		if err := x.Console.Type("typed\n"); err != nil {
			t.Fatal(err)
		}
		if code, err := x.Wait(ctx); err != nil || code != 12 {
			t.Errorf("exit code %d, error %v", code, err)
		}
		if err := x.Console.Wait(ctx); err != nil || !strings.Contains(x.Console.Out.String(), "0 typed\r\n") {
			t.Errorf("the terminal shows %q, error %v", x.Console.Out.String(), err)
		}
	})
	t.Run("detached", func(t *testing.T) {
		x, err := c.StartExec(ctx, false, engine.Detached, "sh", "-c", "echo there >/tmp/detached; exit 9")
		if err != nil {
			t.Fatal(err)
		}
		// iSulad does not wait here; a late Wait must still be answered.
		if code, err := x.Wait(ctx); err != nil || code != 9 {
			t.Errorf("exit code %d, error %v", code, err)
		}
		if got := execOut(ctx, t, c, "cat", "/tmp/detached"); got != "there\n" {
			t.Errorf("it left %q", got)
		}
	})
	t.Run("no such program", func(t *testing.T) {
		if _, _, err := c.Exec(ctx, "/no/such/program"); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
			t.Errorf("error %v", err)
		}
	})
	if err := c.Kill(ctx, 0); err != nil {
		t.Errorf("after its execs: %v", err)
	}
}

// A paused container is killed with SIGKILL and then resumed.
func TestPauseAndKill(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, app(sharedPod(ctx, t), "sleep", "1000"), engine.Detached)
	if err := c.Pause(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(ctx, 0); err != nil {
		t.Errorf("while it is paused: %v", err)
	}
	if err := c.Kill(ctx, 9); err != nil {
		t.Fatal(err)
	}
	_ = c.Resume(ctx) // it may be dead already
	wantExit(ctx, t, c, 137)
}

// The container handles the stop signal, and its exit code is its own.
func TestStopSignalIsTheContainersToHandle(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, app(sharedPod(ctx, t), script("trap 'exit 21' TERM; echo ready; while :; do sleep 0.1; done")...), engine.Foreground)
	if err := c.Console().Out.Await(ctx, "ready"); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(ctx, testTimeout); err != nil {
		t.Fatal(err)
	}
	wantExit(ctx, t, c, 21)
}

// A Create that fails in a pod does not affect the other containers.
func TestCreateFailsInPod(t *testing.T) {
	ctx := testContext(t)
	for name, change := range map[string]func(*engine.Config){
		"no such program": func(c *engine.Config) { c.Args = []string{"/no/such/program"} },
		"no rootfs":       func(c *engine.Config) { c.Rootfs = "/no/such/rootfs" },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := app(sharedPod(ctx, t), "true")
			change(&cfg)
			c := create(t, bed.engine, cfg)
			if err := c.Start(ctx, engine.Foreground); err == nil || !strings.Contains(err.Error(), "/no/such/") {
				t.Errorf("error %v", err)
			}
			wantFailedCreate(t, c)
		})
	}
	if err := bed.pod.Kill(ctx, 0); err != nil {
		t.Errorf("the sandbox: %v", err)
	}
}

// wantFailedCreate checks the calls after a failed Create: the container is
// unknown, and Shutdown succeeds.
func wantFailedCreate(t *testing.T, c *engine.Container) {
	t.Helper()
	wantCalls(t, c, "Create failed", "Kill(9) failed", "Delete failed", "Shutdown")
	for _, call := range c.Calls()[1:3] {
		if engine.Code(call.Err) != engine.CodeNotFound {
			t.Errorf("%s: %v, want not found", call.Name, call.Err)
		}
	}
}

// When the Create of a pod's first container fails, at the boot's last step or
// after the boot, no VM is left.
func TestCreateFails(t *testing.T) {
	ctx := testContext(t)
	opts := bed.opts
	opts.Env = []string{"KATABOX_FAILPOINT=guest"}
	failing, err := engine.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(failing.Close)
	for name, c := range map[string]*engine.Container{
		"boot": create(t, failing, single("true")), "container": create(t, bed.engine, single("/no/such/program")),
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.Start(ctx, engine.Foreground); err == nil {
				t.Fatal("started")
			}
			wantFailedCreate(t, c)
			wantExit(ctx, t, c, 125)
			if err := awaitClean(ctx, c); err != nil {
				t.Error(err)
			}
		})
	}
}

// After a failed Start there is no Kill, only Delete and Shutdown.
func TestStartFails(t *testing.T) {
	ctx := testContext(t)
	var c *engine.Container
	cfg := single("true")
	cfg.Created = func() {
		if err := syscall.Kill(processesOf(c.ID)[qemuName], syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	}
	c = create(t, bed.engine, cfg)
	if err := c.Start(ctx, engine.Detached); err == nil {
		t.Fatal("started")
	}
	wantCalls(t, c, "Create", "Start failed", "Delete", "Shutdown")
	if err := awaitClean(ctx, c); err != nil {
		t.Error(err)
	}
}

// The same holds in a pod, for a container that is killed between its Create
// and its Start; the pod keeps running.
func TestStartFailsInPod(t *testing.T) {
	ctx := testContext(t)
	var c *engine.Container
	cfg := app(sharedPod(ctx, t), "true")
	cfg.Created = func() {
		if err := c.Kill(ctx, 9); err != nil {
			t.Error(err)
		}
	}
	c = create(t, bed.engine, cfg)
	if err := c.Start(ctx, engine.Foreground); err == nil {
		t.Fatal("started")
	}
	wantCalls(t, c, "Create", "Kill(9)", "Start failed", "Delete", "Shutdown")
	if err := bed.pod.Kill(ctx, 0); err != nil {
		t.Errorf("the sandbox: %v", err)
	}
}

// A container in a pod has the hostname that iSulad gave it, also in its
// /etc/hostname: its spec names no UTS namespace to join.
func TestHostnameOfAServiceContainer(t *testing.T) {
	ctx := testContext(t)
	c := start(ctx, t, app(sharedPod(ctx, t), "sleep", "1000"), engine.Detached)
	if got, want := execOut(ctx, t, c, "sh", "-c", "hostname; cat /etc/hostname"), c.ID[:12]+"\n"; got != want+want {
		t.Errorf("hostname and its file: %q, want %q in both", got, want)
	}
}

// A container as iSulad's CRI makes it: with CRI's annotations, and with the
// sandbox's namespaces, by the pid that the sandbox's Start returned.
func TestCRIContainer(t *testing.T) {
	ctx := testContext(t)
	pod := sharedPod(ctx, t)
	cfg := app(pod, "sleep", "1000")
	cfg.Annotations = map[string]string{
		"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": pod,
		"io.kubernetes.cri.container-name": "web", "io.kubernetes.cri.image-name": "busybox",
	}
	cfg.Namespaces = map[specs.LinuxNamespaceType]string{}
	for kind, file := range map[specs.LinuxNamespaceType]string{
		specs.PIDNamespace: "pid", specs.NetworkNamespace: "net", specs.IPCNamespace: "ipc", specs.UTSNamespace: "uts",
	} {
		cfg.Namespaces[kind] = procPath(int(bed.pod.PID()), "ns", file)
	}
	c := start(ctx, t, cfg, engine.Detached)
	if got := execOut(ctx, t, c, "hostname"); got != pod[:12]+"\n" {
		t.Errorf("hostname %q, want the sandbox's", got)
	}
	if got := execOut(ctx, t, c, "cat", "/proc/1/cmdline"); !strings.HasPrefix(got, "/pause") {
		t.Errorf("process 1 is %q, want the sandbox's", got)
	}
}
