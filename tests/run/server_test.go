package run

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A server in the background, and the commands that manage it.
func TestDetached(t *testing.T) {
	ctx := testContext(t)
	for _, program := range []string{"pasta", "slirp4netns"} {
		t.Run(program, func(t *testing.T) {
			if _, err := exec.LookPath(program); err != nil {
				t.Skip(err)
			}
			serve(ctx, t, program)
		})
	}
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func serve(ctx context.Context, t *testing.T, network string) {
	name, port, data := newName(t), freePort(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "index.html"), []byte("served\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	call(ctx, t, "", "run", "-d", "--name", name, "--network", network, "-p", "127.0.0.1:"+port+":80",
		"-v", data+":/www:ro", "-v", data+":/out", "-e", "GREETING=hi", "--hostname", "web", "--memory", "128m", "--cpus", "1",
		bed.images.layout, "sh", "-c", `echo $GREETING $(hostname); touch /www/x; echo written >/out/file
			trap 'exit 5' TERM; httpd -p 80 -h /www; while :; do sleep 0.1; done`).must(t, 0, name+"\n")
	checkServer(ctx, t, port)
	checkLogs(ctx, t, name)
	checkExec(ctx, t, name)
	if got, err := os.ReadFile(filepath.Join(data, "file")); string(got) != "written\n" {
		t.Errorf("volume: %q, %v", got, err)
	}
	if r := call(ctx, t, "", "ps"); !strings.Contains(r.out, name) || !strings.Contains(r.out, "running") || !strings.Contains(r.out, "127.0.0.1:"+port+":80/tcp") {
		t.Errorf("ps: %s%s", r.out, r.errOut)
	}
	call(ctx, t, "", "rm", name).says(t, 125, "is running")
	call(ctx, t, "", "run", "--name", name, "--network", "none", bed.images.layout, "true").says(t, 125, "already exists")
	call(ctx, t, "", "stop", name).want(t, 0, "")
	if r := call(ctx, t, "", "ps", "-a"); !strings.Contains(r.out, "exited (5)") {
		t.Errorf("ps -a: %s%s", r.out, r.errOut)
	}
	call(ctx, t, "", "ps", "-q").want(t, 0, "")
	call(ctx, t, "", "exec", name, "id").says(t, 125, "is not running, but exited (5)")
	call(ctx, t, "", "logs", name).want(t, 0, "hi web\n")
	call(ctx, t, "", "stop", name).want(t, 0, "")
	call(ctx, t, "", "rm", name).want(t, 0, "")
	call(ctx, t, "", "rm", name).says(t, 125, "not found")
}

func checkServer(ctx context.Context, t *testing.T, port string) {
	t.Helper()
	var got string
	served := func() bool {
		resp, err := http.Get("http://127.0.0.1:" + port + "/")
		if err != nil {
			got = err.Error()
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		got = fmt.Sprint(string(body), err)
		return string(body) == "served\n"
	}
	if !eventually(ctx, served) {
		t.Errorf("server: %s", got)
	}
	http.DefaultClient.CloseIdleConnections()
}

func checkLogs(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	r := call(ctx, t, "", "logs", name)
	if r.out != "hi web\n" || !strings.Contains(r.errOut, "Read-only file system") {
		t.Errorf("logs: %q, %q", r.out, r.errOut)
	}
}

func checkExec(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	call(ctx, t, "", "exec", "-u", "app", "-e", "X=y", "-w", "/tmp", name, "sh", "-c", `id -un; echo $X $GREETING; pwd; exit 3`).
		want(t, 3, "app\ny hi\n/tmp\n")
	// A user that the container has added counts, too.
	call(ctx, t, "", "exec", name, "sh", "-c", "echo bob:x:4242:4242::/:/bin/sh >>/etc/passwd").want(t, 0, "")
	call(ctx, t, "", "exec", "-u", "bob", name, "id", "-u").want(t, 0, "4242\n")
	call(ctx, t, "line\n", "exec", "-i", name, "cat").want(t, 0, "line\n")
	call(ctx, t, "", "exec", name).says(t, 125, "exec --help")
	call(ctx, t, "", "exec", name, "nosuch").says(t, 127, "executable file not found")
	call(ctx, t, "", "exec", name, "sh", "-c", "cat /sys/fs/cgroup/memory.max").want(t, 0, fmt.Sprintln(128<<20))
}
