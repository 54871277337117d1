package volume

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// listening makes a UNIX socket of a type, owned by 5:6 with mode 0620.
func listening(t *testing.T, network, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	var end interface{ Close() error }
	var err error
	if network == "unixgram" {
		end, err = net.ListenUnixgram(network, &net.UnixAddr{Name: path, Net: network})
	} else {
		end, err = net.Listen(network, path)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = end.Close() })
	if err := os.Chown(path, 5, 6); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o620); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSockets(t *testing.T) {
	n := newNode(t)
	owner := Owner{Mode: 0o620, UID: 5, GID: 6}
	stream, packets := listening(t, "unix", "a"), listening(t, "unixpacket", "with space")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(packets, link); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]SocketFile{
		stream: {owner, false}, packets: {owner, true}, link: {owner, true},
	} {
		for _, opts := range []Options{shared, {}} { // with and without a share
			n.expect(opts, source, Volume{Kind: Socket, Socket: want})
		}
	}
	ids := &guestspec.IDMap{UIDs: []specs.LinuxIDMapping{{ContainerID: 5, HostID: 1005, Size: 1}}, GIDs: []specs.LinuxIDMapping{{ContainerID: 0, HostID: 2000, Size: 10}}}
	if v, err := n.classify(shared, guestspec.Bind{Source: stream, IDMap: ids}); err != nil || v.Socket.UID != 1005 || v.Socket.GID != 2006 {
		t.Errorf("idmapped: %+v, %v", v.Socket, err)
	}
	dead, err := net.Listen("unix", filepath.Join(t.TempDir(), "dead"))
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = dead.Close()
	if v, err := n.classify(shared, guestspec.Bind{Source: dead.Addr().String()}); err != nil || v.Kind != Socket || v.Socket.Seqpacket {
		t.Errorf("a socket without a server: %+v, %v", v, err)
	}
}

func TestSocketsByPath(t *testing.T) {
	n := newNode(t)
	absent := filepath.Join(t.TempDir(), "absent")
	if v, err := n.classify(shared, guestspec.Bind{Source: absent, Socket: true}); err != nil || v.Kind != Socket || v.Socket.Owner != absentOwner {
		t.Errorf("absent: %+v, %v", v, err)
	}
	if v, err := n.classify(shared, guestspec.Bind{Source: listening(t, "unixpacket", "s"), Socket: true}); err != nil || !v.Socket.Seqpacket {
		t.Errorf("there: %+v, %v", v, err)
	}
	if _, err := n.classify(shared, guestspec.Bind{Source: t.TempDir(), Socket: true}); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), "uds") {
		t.Errorf("a directory: %v", err)
	}
	if _, err := n.classify(shared, guestspec.Bind{Source: listening(t, "unixgram", "d")}); !errdefs.IsNotImplemented(err) || !strings.Contains(err.Error(), "SOCK_DGRAM") {
		t.Errorf("datagrams: %v", err)
	}
}
