package network

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// withSocket mounts one of the host's UNIX sockets.
func withSocket(kind, source, destination string, options ...string) oci.SpecOpts {
	return oci.WithMounts([]specs.Mount{{Type: kind, Source: source, Destination: destination, Options: options}})
}

// withSockets adds a container that has sockets.
func withSockets(ctx context.Context, t *testing.T, p *harness.Pod, spec ...oci.SpecOpts) *pod {
	t.Helper()
	config := probeConfig("tcp://127.0.0.1:7001")
	config.Spec = append(config.Spec, spec...)
	box, err := p.Add(ctx, config)
	if err != nil {
		t.Fatalf("add container: %v", err)
	}
	if err := box.Start(ctx); err != nil {
		t.Fatalf("start container: %v", err)
	}
	awaitReady(ctx, t, box.Out, box.Err)
	return &pod{Pod: p, box: box}
}

// own sets a socket's owner and mode.
func own(t *testing.T, path string, uid int, mode os.FileMode) {
	t.Helper()
	if err := os.Chown(path, uid, uid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// A UNIX socket that is mounted into a container leads to the host's server:
// bytes and messages, half-closes, owner and mode, and the peer credentials
// that the server sees.
func TestSocketOfTheHost(t *testing.T) {
	ctx, d := begin(t)
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	stop := netns("").serve(ctx, t, "unix://"+at("stream"), "unixpacket://"+at("packets"), "peercred://"+at("peer"), "unix://"+at("private"))
	own(t, at("stream"), 1000, 0o660)
	own(t, at("peer"), 0, 0o666)
	own(t, at("private"), 0, 0o600)
	bare := barePod(ctx, t, d, newNetns(t, d))
	sockets := oci.Compose(
		withSocket("bind", at("stream"), "/run/stream", "rbind", "ro"),
		withSocket("bind", at("packets"), "/run/packets", "rbind", "rw"),
		withSocket("bind", at("peer"), "/run/peer", "bind"),
		withSocket("bind", at("private"), "/run/private", "bind"),
	)
	root := withSockets(ctx, t, bare, sockets)
	root.checks(ctx, t,
		"unix:///run/stream?bytes=1000000", "unixpacket:///run/packets?count=50", "peercred:///run/peer?user=0:0",
		"unix:///run/private?bytes=1", "unix:///run/stream?bytes=1")
	got, err := root.run(ctx, "stat", "-c", "%F %a %u:%g", "/run/stream", "/run/private")
	if want := "socket 660 1000:1000\nsocket 600 0:0\n"; err != nil || got != want {
		t.Errorf("the sockets are %q, %v, want %q", got, err, want)
	}

	user := harness.ExecConfig{
		Args: []string{"/probe/probe", "check", "unix:///run/private?bytes=1"},
		Spec: func(p *specs.Process) { p.User = specs.User{UID: 1000, GID: 1000}; p.Capabilities = nil },
	}
	if e, code, err := root.box.ExecRun(ctx, user); err != nil || code == 0 || !strings.Contains(e.Err.String(), "permission denied") {
		t.Errorf("a user without permission: exit code %d, %v, stderr %q", code, err, e.Err)
	}

	// The mount is of the old socket: a server that makes a new one is not
	// reached, as with every bind mount.
	stop()
	root.checks(ctx, t, "unixclosed:///run/stream")
	netns("").serve(ctx, t, "unix://"+at("stream"))
	root.checks(ctx, t, "unixclosed:///run/stream")
}

// The server sees the container's user, whose permissions apply on the host.
func TestSocketSeesTheContainersUser(t *testing.T) {
	ctx, d := begin(t)
	dir := t.TempDir()
	peer := filepath.Join(dir, "peer")
	netns("").serve(ctx, t, "peercred://"+peer)
	own(t, peer, 1000, 0o600)
	p := withSockets(ctx, t, barePod(ctx, t, d, newNetns(t, d)), oci.WithUIDGID(1000, 1000), withSocket("bind", peer, "/run/peer", "bind"))
	p.checks(ctx, t, "peercred:///run/peer?user=1000:1000")
}

// A mount of type "uds" leads to the server at its path on the host, even one
// that starts later.
func TestSocketByPath(t *testing.T) {
	needVM(t)
	ctx, d := begin(t)
	path := filepath.Join(t.TempDir(), "later")
	p := withSockets(ctx, t, barePod(ctx, t, d, newNetns(t, d)), withSocket("uds", path, "/run/later"))
	p.checks(ctx, t, "unixclosed:///run/later")
	for range 2 {
		stop := netns("").serve(ctx, t, "unix://"+path)
		p.checks(ctx, t, "unix:///run/later?bytes=100000")
		stop()
		p.checks(ctx, t, "unixclosed:///run/later")
	}
}

// A container's UNIX socket is reached from the host if its annotation asks for
// that: bytes, messages and half-closes, and the peer credentials that the
// server sees. No link in the container leads out of it, and the socket ends
// with the container.
func TestSocketOfTheContainer(t *testing.T) {
	needVM(t)
	ctx, d := begin(t)
	config := probeConfig("unix:///tmp/app", "unixpacket:///tmp/rpc", "peercred:///tmp/peer", "tcp://127.0.0.1:7001")
	config.Spec = append(config.Spec, oci.WithUIDGID(1000, 1000), oci.WithAnnotations(map[string]string{
		"io.katacontainers.container.publish_sockets": "app=/tmp/app peer=/tmp/peer link=/tmp/own/link none=/tmp/none out=/proc/1/root/tmp/app " +
			"rpc:seqpacket=/tmp/rpc not:seqpacket=/tmp/app nor=/tmp/rpc",
	}))
	bare := barePod(ctx, t, d, newNetns(t, d))
	box, err := bare.Add(ctx, config)
	if err != nil {
		t.Fatalf("add container: %v", err)
	}
	if err := box.Start(ctx); err != nil {
		t.Fatalf("start container: %v", err)
	}
	awaitReady(ctx, t, box.Out, box.Err)
	if _, err := runIn(ctx, box, "sh", "-c", "mkdir /tmp/own && ln -s ../../../../tmp/app /tmp/own/link"); err != nil {
		t.Fatal(err)
	}
	at := func(name string) string {
		return filepath.Join("/run/kata-containers/sandboxes", d.HostName(bare.Sandbox.Box.ID()), "uds", name)
	}
	netns("").checks(t,
		"unix://"+at("app")+"?bytes=1000000", "unix://"+at("link")+"?bytes=1000", "peercred://"+at("peer")+"?user=0:0",
		"unixpacket://"+at("rpc")+"?count=50",
		"unixclosed://"+at("none"), "unixclosed://"+at("out"), "unixclosed://"+at("nor"), "unixpacketclosed://"+at("not"),
		"unix://"+at("app")+"?bytes=1")
	if err := box.Remove(ctx); err != nil {
		t.Fatalf("remove container: %v", err)
	}
	if _, err := os.Lstat(at("app")); !os.IsNotExist(err) {
		t.Errorf("the socket is there after its container: %v", err)
	}
}

// What cannot be forwarded is refused with one clear error.
func TestSocketsThatAreRefused(t *testing.T) {
	needVM(t)
	ctx, d := begin(t)
	bare := barePod(ctx, t, d, newNetns(t, d))
	dir := t.TempDir()
	datagrams := filepath.Join(dir, "datagrams")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: datagrams, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for source, want := range map[string]string{datagrams: "SOCK_DGRAM", dir: "must be a UNIX socket"} {
		kind := "bind"
		if source == dir {
			kind = "uds"
		}
		config := probeConfig("tcp://127.0.0.1:7001")
		config.Spec = append(config.Spec, withSocket(kind, source, "/run/x", "bind"))
		c, err := bare.Add(ctx, config)
		if err == nil {
			t.Errorf("%s was mounted", source)
			removed(t, "container", c.Remove)
			continue
		}
		if !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), source) {
			t.Errorf("%v, want %q and the source in it", err, want)
		}
	}
}
