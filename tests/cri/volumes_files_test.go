package cri

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/harness"
)

// A ConfigMap's update reaches the container, and inotify reports it to
// programs.
func TestConfigMapUpdate(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		checkConfigMap(ctx, t, k, runp(ctx, t, e, "configmap"))
	})
}

func checkConfigMap(ctx context.Context, t *testing.T, k *kubelet, p *pod) {
	t.Helper()
	dir := k.volume("configmap", "settings")
	k.publish(dir, map[string]string{"key": "old", "gone": "x"})
	tools := k.mkdir(filepath.Join(k.dir, "tools"))
	compileAwaitfile(ctx, t, filepath.Join(tools, "awaitfile"))
	volumes := with(dir+":/settings:ro", tools+":/tools:ro")
	reader := p.start(ctx, t, forever, volumes)
	watcher := p.start(ctx, t, []string{"/tools/awaitfile", "/settings", "..data"}, volumes)
	p.awaitLog(ctx, t, watcher, "watching")
	if got := p.sh(ctx, t, reader, "cat /settings/key; echo; ls /settings"); got != "old\ngone\nkey" {
		t.Errorf("at first: %q", got)
	}
	published := time.Now()
	k.publish(dir, map[string]string{"key": "new", "more": "y"})
	k.must(os.Remove(filepath.Join(dir, "gone")))
	if code := p.awaitState(ctx, t, watcher, "CONTAINER_EXITED"); code != 0 {
		t.Errorf("awaitfile ended with %d", code)
	}
	t.Logf("a program in the container was told, and that was seen, after %v", time.Since(published))
	p.awaitOutput(ctx, t, reader, "cat /settings/key /settings/more; echo; ls /settings", "newy\nkey\nmore")
}

// compileAwaitfile makes the static program testdata/awaitfile.c.
func compileAwaitfile(ctx context.Context, t *testing.T, to string) {
	t.Helper()
	source, err := os.ReadFile("testdata/awaitfile.c")
	if err == nil {
		err = harness.CompileC(ctx, string(source), to)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// awaitLog waits until a container has printed a line.
func (p *pod) awaitLog(ctx context.Context, t *testing.T, id, line string) {
	t.Helper()
	for !strings.Contains(p.do(ctx, t, "logs", id), line) {
		p.pause(ctx, t, "container "+id+" prints "+line)
	}
}

// Volumes that are files, and changes by the host while the container runs.
func TestFilesOfTheHost(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		secret := k.volume("secret", "login")
		k.publish(secret, map[string]string{"user": "alice"})
		user := k.subPath(secret, "user", 0)
		host := k.mkdir(filepath.Join(k.dir, "host"))
		k.own(host, 0, 0, 0o777)
		below := k.mkdir(filepath.Join(host, "below"))
		k.mount("tmpfs", below, "tmpfs", 0, "")
		k.write(below+"/file", "mounted")
		log := k.write(filepath.Join(k.mkdir(filepath.Join(k.pod, "containers/c")), "0001"), "")
		k.must(os.Chmod(log, 0o666))

		p := runp(ctx, t, e, "files")
		id := p.start(ctx, t, forever, with(user+":/etc/user:ro", host+":/rw", host+":/ro:ro", log+":/dev/termination-log"))
		if got := p.sh(ctx, t, id, "cat /etc/user; cat /rw/below/file; echo mine > /rw/file; echo last > /dev/termination-log"); got != "alicemounted" {
			t.Errorf("in the container: %q", got)
		}
		for path, want := range map[string]string{host + "/file": "mine\n", log: "last\n"} {
			if got, err := os.ReadFile(path); err != nil || string(got) != want {
				t.Errorf("%s on the host: %q, %v", path, got, err)
			}
		}
		k.write(host+"/late", "later")
		p.awaitOutput(ctx, t, id, "cat /rw/late /ro/late 2>/dev/null || true", "laterlater")
		if got := p.sh(ctx, t, id, "touch /ro/new 2>/dev/null || echo read-only"); got != "read-only" {
			t.Errorf("write through a read-only mount: %q", got)
		}
	})
}

// A socket of the host is forwarded by connection, so datagram sockets are
// refused.
func TestSocketVolume(t *testing.T) {
	within(t, walkTimeout, func(ctx context.Context, t *testing.T, e *env.Env) {
		k := newKubelet(t, e)
		stream, packets := filepath.Join(k.dir, "stream"), filepath.Join(k.dir, "datagrams")
		l, err := net.Listen("unix", stream)
		k.must(err)
		defer l.Close()
		d, err := net.ListenPacket("unixgram", packets)
		k.must(err)
		defer d.Close()
		p := runp(ctx, t, e, "socket")
		if got := p.refused(ctx, t, with(packets+":/run/socket")); !strings.Contains(got, "SOCK_DGRAM") {
			t.Errorf("the error is: %s", got)
		}
		// Nothing of it blocks the next container.
		id := p.start(ctx, t, forever, with(stream+":/run/socket"))
		if got := p.sh(ctx, t, id, "test -S /run/socket && echo socket"); got != "socket" {
			t.Errorf("in the container: %q", got)
		}
	})
}
