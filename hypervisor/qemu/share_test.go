package qemu

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/child"
)

const virtiofsd = "/usr/lib/qemu/virtiofsd"

// shareSocket starts a virtio-fs back end and connects to it.
func shareSocket(t *testing.T) *os.File {
	t.Helper()
	if _, err := os.Stat(virtiofsd); err != nil {
		t.Skipf("this test needs QEMU's virtiofsd: %v", err)
	}
	dir := t.TempDir()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	listening, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Close()
	daemon, err := child.Start(child.Options{
		Path:       virtiofsd,
		Args:       []string{"--fd=3", "-o", "source=" + dir, "-o", "sandbox=chroot", "-f"},
		ExtraFiles: []*os.File{listening},
		Stdout:     io.Discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemon.Kill(testContext(t)); err != nil {
			t.Error(err)
		}
	})
	conn, err := net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	socket, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	return socket
}

// A real vhost-user device is attached to the pod's bus of a real QEMU, before
// and after the machine runs.
func TestAttachShare(t *testing.T) {
	spec := testSpec(t, testKernel(t, "", idle))
	vm := launch(t, spec)
	for i, id := range []string{"paused", "running"} {
		if i == 1 {
			if err := vm.Resume(testContext(t)); err != nil {
				t.Fatal(err)
			}
		}
		d := hypervisor.FSShare{ID: id, Tag: id, Socket: shareSocket(t), QueueSize: 512}
		if err := vm.Attach(testContext(t), d); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"paused", "running"} {
		var bus string
		args := map[string]string{"path": "/machine/peripheral/" + id, "property": "parent_bus"}
		if err := vm.mon.Execute(testContext(t), "qom-get", args, &bus); err != nil {
			t.Fatal(err)
		}
		if want := "/machine/peripheral/" + podBus + "/" + podBus; bus != want {
			t.Errorf("%s is on bus %s, want %s", id, bus, want)
		}
	}
}

// A refused share leaves nothing: the same ID can be used again.
func TestRefusedShareIsUndone(t *testing.T) {
	vm := launch(t, testSpec(t, testKernel(t, "", idle)))
	d := hypervisor.FSShare{ID: "share", Tag: "t", QueueSize: 0x8000, Socket: shareSocket(t)}
	err := vm.Attach(testContext(t), d)
	if err == nil || !strings.Contains(err.Error(), "queue-size") {
		t.Fatalf("Attach with an impossible queue: %v", err)
	}
	d.QueueSize, d.Socket = 0, shareSocket(t)
	if err := vm.Attach(testContext(t), d); err != nil {
		t.Error(err)
	}
	var chardevs []struct{ Label string }
	if err := vm.mon.Execute(testContext(t), "query-chardev", nil, &chardevs); err != nil {
		t.Fatal(err)
	}
	if len(chardevs) != 3 { // qmp, console, char-share
		t.Errorf("chardevs: %+v", chardevs)
	}
}
