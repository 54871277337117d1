package virtcontainers_test

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
)

// publishing returns the options of a container that publishes sockets.
func (p *pod) publishing(id, sockets string) virtcontainers.ContainerOptions {
	opts := p.options(id, nil)
	opts.Bundle.Spec.Annotations = map[string]string{bundle.PublishAnnotation: sockets}
	return opts
}

// published returns a socket's path on the host.
func (p *pod) published(name string) string {
	return filepath.Join(p.host.Platform().PodDir(sandboxID), "uds", name)
}

func wantNoFile(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there: %v", path, err)
	}
}

// asks sends text to a socket and returns all that comes back.
func asks(t *testing.T, path, text string) string {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, _ = io.WriteString(conn, text)
	_ = conn.CloseWrite()
	got, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

// The host reaches the sockets that a container's annotation names, from its
// creation until it is deleted.
func TestPublishedSockets(t *testing.T) {
	p := newPod(t)
	c, err := p.Create(t.Context(), p.publishing(sandboxID, "api=/run/api.sock other=/tmp/o"), ignore)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"api": "pod:/run/api.sock hello", "other": "pod:/tmp/o hello"} {
		if got := asks(t, p.published(name), "hello"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if info, err := os.Stat(p.published(".")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v, %v", info, err)
	}

	// Its names are taken, and remain its when another container that wants
	// them is refused.
	_, err = p.Create(t.Context(), p.publishing("c1", "new=/x api=/y"), func(*virtcontainers.Container) { t.Error("announced") })
	wantError(t, "a name that is taken", err, errdefs.IsAlreadyExists, "NAME=CONTAINER:PATH")
	wantNoFile(t, p.published("new"))
	_, err = p.Create(t.Context(), p.publishing("c1", "no path"), func(*virtcontainers.Container) { t.Error("announced") })
	wantError(t, "no path", err, errdefs.IsInvalidArgument, "want NAME=PATH")
	if got := asks(t, p.published("api"), ""); !strings.HasPrefix(got, "pod:") {
		t.Errorf("after a refusal: %q", got)
	}

	p.start(initOf(t, c))
	p.exits(sandboxID, "", 0)
	statusOf(t, initOf(t, c))
	if _, err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoFile(t, p.published("api"))
	wantNoFile(t, p.published("other"))
}

// A SOCK_SEQPACKET socket on the host leads to one in the container.
func TestPublishedSocketOfMessages(t *testing.T) {
	p := newPod(t)
	c, err := p.Create(t.Context(), p.publishing(sandboxID, "rpc:seqpacket=/run/rpc api=/run/api.sock"), ignore)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: p.published("rpc"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(patience))
	for _, message := range []string{"one", "another"} {
		if _, err := io.WriteString(conn, message); err != nil {
			t.Fatal(err)
		}
	}
	buf := make([]byte, 100)
	for _, want := range []string{"pod:/run/rpc ", "one", "another"} {
		if n, err := conn.Read(buf); err != nil || string(buf[:n]) != want {
			t.Errorf("%q, %v, want %q", buf[:n], err, want)
		}
	}
	if got, want := asks(t, p.published("api"), "hello"), "pod:/run/api.sock hello"; got != want {
		t.Errorf("the stream: %q, want %q", got, want)
	}
	p.start(initOf(t, c))
	p.exits(sandboxID, "", 0)
	statusOf(t, initOf(t, c))
	if _, err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoFile(t, p.published("rpc"))
}

// Deleting a container ends its sockets' connections and frees their names.
func TestPublishedSocketsEndWithTheContainer(t *testing.T) {
	p := newPod(t)
	p.run(sandboxID)
	for range 2 {
		c, err := p.Create(t.Context(), p.publishing("c1", "api=/run/api.sock"), ignore)
		if err != nil {
			t.Fatal(err)
		}
		p.start(initOf(t, c))
		conn, err := net.Dial("unix", p.published("api"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_ = conn.SetDeadline(time.Now().Add(patience))
		greeting := make([]byte, len("c1:/run/api.sock "))
		if _, err := io.ReadFull(conn, greeting); err != nil {
			t.Fatal(err)
		}
		p.exits("c1", "", 0)
		statusOf(t, initOf(t, c))
		if _, err := c.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after the end: %d bytes, %v", n, err)
		}
	}
}

// The sockets of a killed machine are removed with the pod.
func TestPublishedSocketsOfADeadMachine(t *testing.T) {
	p := newPod(t)
	c, err := p.Create(t.Context(), p.publishing(sandboxID, "api=/run/api.sock"), ignore)
	if err != nil {
		t.Fatal(err)
	}
	p.start(initOf(t, c))
	path := p.published("api")
	p.host.VM().Die(errDied)
	p.awaitStopped()
	wantNoFile(t, path)
	if _, err := c.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
}
