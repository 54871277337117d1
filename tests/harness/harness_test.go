package harness

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// start starts a daemon with runc, which needs nothing built but the release.
func start(t *testing.T, release string) *Daemon {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containerd needs root")
	}
	layout, err := FindLayout()
	if err != nil {
		t.Fatal(err)
	}
	r, err := FindRelease(layout, release)
	if err != nil {
		t.Fatal(err)
	}
	d, err := Start(t.Context(), Options{Layout: layout, Release: r, Runtime: Runc})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDaemonRunsAPodAndLeavesNothing(t *testing.T) {
	for _, release := range []string{"1.6", "2.4"} {
		t.Run(release, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			d := start(t, release)
			defer func() {
				if err := d.Stop(context.WithoutCancel(ctx)); err != nil {
					t.Error(err)
				}
			}()
			pod, err := d.NewPod(ctx, "pod")
			if err != nil {
				t.Fatalf("%v\n%s", err, d.LogTail(30))
			}
			c, err := pod.Add(ctx, ContainerConfig{Name: "service", Args: []string{"sh", "-c", "echo hello; exit 7"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			code, err := c.Wait(ctx)
			if err != nil || code != 7 || c.Out.String() != "hello\n" {
				t.Errorf("got code %d, output %q, error %v", code, c.Out, err)
			}
			if err := pod.Remove(ctx); err != nil {
				t.Error(err)
			}
			if err := d.Settled(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

// A leak check that finds nothing proves nothing unless it can find something.
func TestLeaksAreFound(t *testing.T) {
	d := start(t, "1.6")
	orphan := exec.Command("sh", "-c", "sleep 60 >/dev/null 2>&1 &")
	orphan.Env = d.Env()
	if err := orphan.Run(); err != nil {
		t.Fatal(err)
	}
	left := d.fifoDir() + "/left"
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	group := leaveCgroup(t, d.tag)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := d.Settled(ctx)
	for _, want := range []string{"sleep 60", left, group} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("leak check does not name %q: %v", want, err)
		}
	}
	stopped, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := d.Stop(stopped); err == nil || !strings.Contains(err.Error(), "sleep 60") {
		t.Errorf("Stop does not name the process: %v", err)
	}
}

// leaveCgroup makes a cgroup as a pod's is called, until the test ends, and returns
// its name.
func leaveCgroup(t *testing.T, tag string) string {
	t.Helper()
	parent := "/sys/fs/cgroup/pids"
	if _, err := os.Stat(parent); err != nil {
		parent = "/sys/fs/cgroup" // v2
	}
	parent = filepath.Join(parent, "harness-"+tag)
	group := filepath.Join(parent, "kata_"+tag+"-pod-1")
	for _, dir := range []string{parent, group} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skip(err)
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
	}
	return "kata_" + tag + "-pod-1"
}
