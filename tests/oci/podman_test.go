package oci

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// podman is a Podman with separate storage.
type podman struct {
	t       *testing.T
	dir     string
	runtime string
}

func newPodman(t *testing.T) *podman {
	t.Helper()
	for _, name := range []string{"podman", "conmon"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed", name)
		}
	}
	dropPodmanCgroups(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "containers.conf")
	// The defaults are above what an unprivileged host may set.
	text := "[containers]\ndefault_ulimits=[\"nofile=1024:1024\", \"nproc=1024:1024\"]\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CONTAINERS_CONF", conf)
	// Podman does not pass on its environment.
	script := fmt.Sprintf("#!/bin/sh\nexport KATA_CONF_FILE=%s\nexec %s \"$@\"\n", os.Getenv("KATA_CONF_FILE"), suite.kata)
	p := &podman{t: t, dir: dir, runtime: filepath.Join(dir, "kata-runtime")}
	if err := os.WriteFile(p.runtime, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.run("pod", "rm", "--all", "--force", "--time", "0")
		p.run("rm", "--all", "--force", "--time", "0")
		for _, line := range processesOf(dir) {
			t.Errorf("runs on: %s", line)
		}
	})
	return p
}

// run calls podman and returns its exit code and output.
func (p *podman) run(args ...string) result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "podman", append([]string{
		"--root", filepath.Join(p.dir, "root"), "--runroot", filepath.Join(p.dir, "run"), "--tmpdir", filepath.Join(p.dir, "tmp"),
		"--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "file", "--runtime", p.runtime,
	}, args...)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil && cmd.ProcessState == nil {
		p.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want checks a call's exit code and what is in its output.
func (p *podman) want(code int, out string, args ...string) {
	p.t.Helper()
	if res := p.run(args...); res.code != code || !strings.Contains(res.out, out) {
		p.t.Errorf("podman %s: exit %d, output %q, errors %q; want %d and %q",
			strings.Join(args, " "), res.code, res.out, res.errors, code, out)
	}
}

// importImage makes the image localhost/busybox:1.
func (p *podman) importImage() {
	p.t.Helper()
	archive := filepath.Join(p.dir, "rootfs.tar")
	if out, err := exec.Command("tar", "-C", suite.rootfs, "-cf", archive, ".").CombinedOutput(); err != nil {
		p.t.Fatalf("%v: %s", err, out)
	}
	p.want(0, "", "import", archive, "localhost/busybox:1")
}

// TestPodman manages containers and a pod as a user does.
func TestPodman(t *testing.T) {
	p := newPodman(t)
	p.importImage()
	run := []string{"run", "--rm", "--network", "none", "localhost/busybox:1"}
	p.want(42, "hello\n", append(run, "sh", "-c", "echo hello; exit 42")...)
	p.want(127, "", append(run, "nosuch")...)

	p.want(0, "", "run", "-d", "--name", "c", "--network", "none", "localhost/busybox:1", "sh", "-c", "trap 'exit 143' TERM; while :; do sleep 0.1; done")
	p.want(0, "hi\n", "exec", "c", "echo", "hi")
	p.want(7, "", "exec", "c", "sh", "-c", "exit 7")
	p.want(127, "", "exec", "c", "nosuch")
	p.want(0, "", "pause", "c")
	p.want(0, "", "unpause", "c")
	p.want(0, "", "stop", "--time", "60", "c")
	p.want(0, "143 exited", "inspect", "--format", "{{.State.ExitCode}} {{.State.Status}}", "c")
	p.want(0, "", "rm", "c")

	p.want(0, "", "pod", "create", "--name", "pod", "--network", "none", "--infra-image", "localhost/busybox:1", "--infra-command", "sleep 1000")
	p.want(0, "one\n", "run", "--rm", "--pod", "pod", "localhost/busybox:1", "echo", "one")
	p.want(0, "", "run", "-d", "--name", "two", "--pod", "pod", "localhost/busybox:1", "sleep", "1000")
	if shims := p.shims(); shims != 1 {
		t.Errorf("%d shims run for one pod", shims)
	}
	p.want(0, "", "pod", "rm", "--force", "--time", "0", "pod")
}

// shims counts the shims of this Podman's containers. Shims are found by
// container id, because they name the default root.
func (p *podman) shims() int {
	p.t.Helper()
	ids := strings.Fields(p.run("ps", "--all", "--quiet", "--no-trunc").out)
	count := 0
	for _, id := range ids {
		for _, line := range processesOf("-id\x00" + id) {
			if strings.Contains(line, "containerd-shim-kata-v2") {
				count++
			}
		}
	}
	return count
}
