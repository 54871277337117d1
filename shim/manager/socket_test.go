package manager

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/virtcontainers/bundle"
)

func TestListen(t *testing.T) {
	address := bundle.AddressScheme + filepath.Join(shortDir(t), "dir", "x.sock")
	l, err := listen(address)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(socketPath(address))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket %v, %v", info, err)
	}
	if _, err := listen(address); err == nil || !strings.Contains(err.Error(), "is running") {
		t.Errorf("a socket that is served was replaced: %v", err)
	}
	_ = l.Close() // as after a killed shim, the file stays
	if l, err = listen(address); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("unix", socketPath(address))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	for range 2 {
		if err := removeSocket(address); err != nil {
			t.Error(err)
		}
	}
	if _, err := listen(bundle.AddressScheme + "/dev/null/x.sock"); err == nil {
		t.Error("a socket below a file")
	}
	if _, err := listen(bundle.AddressScheme + filepath.Join(shortDir(t), strings.Repeat("x", 120))); err == nil {
		t.Error("a socket of too long a name")
	}
}

// The address is short and unique to the shim.
func TestSocketAddress(t *testing.T) {
	long := &Params{ID: strings.Repeat("f", 128), Namespace: "n", GRPCAddress: "/run/a"}
	if path := socketPath(socketAddress(long)); len(path) > 107 {
		t.Errorf("%s: %d bytes", path, len(path))
	}
	seen := map[string]*Params{}
	for _, p := range []*Params{
		long, {ID: "a", Namespace: "n", GRPCAddress: "/run/a"}, {ID: "a", Namespace: "m", GRPCAddress: "/run/a"},
		{ID: "a", Namespace: "n", GRPCAddress: "/run/b"}, {ID: "b", Namespace: "n", GRPCAddress: "/run/a"},
	} {
		if other := seen[socketAddress(p)]; other != nil {
			t.Errorf("%+v and %+v have one address", p, other)
		}
		seen[socketAddress(p)] = p
	}
	if got := socketAddress(&Params{SocketDir: "/mine"}); !strings.HasPrefix(got, "unix:///mine/") {
		t.Errorf("the engine's directory is not used: %s", got)
	}
}

func TestReadAddress(t *testing.T) {
	dir := t.TempDir()
	if _, err := bundle.Address(dir); !os.IsNotExist(err) {
		t.Errorf("no file: %v", err)
	}
	for content, good := range map[string]bool{
		"unix:///run/x.sock": true, "unix:///run/x.sock\n": true, "": false, "unix://x": false, "vsock://1:2": false, "/run/x.sock": false,
	} {
		if err := writeFile(dir, bundle.AddressFile, content); err != nil {
			t.Fatal(err)
		}
		if address, err := bundle.Address(dir); (err == nil) != good || good && address != "unix:///run/x.sock" {
			t.Errorf("%q: %q, %v", content, address, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("files: %v, %v", entries, err)
	}
	if err := writeFile("/dev/null", bundle.AddressFile, ""); err == nil {
		t.Error("a file below a file")
	}
}
