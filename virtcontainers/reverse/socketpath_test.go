package reverse

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	actual := filepath.Join(dir, "real")
	if err := os.Mkdir(actual, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{
		"relative": "real", "absolute": actual, "chain": "./relative/../real", "loop": "loop", "up": "relative/later/../../late",
		"dangling": "real/later",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"real/s": "real/s", "relative/s": "real/s", "absolute/s": "real/s", "chain//./s": "real/s",
		"none/at/all": "none/at/all", "dangling": "real/later", "dangling/s": "real/later/s", "up": "late",
	} {
		if got, err := resolve(dir + "/" + path); err != nil || got != filepath.Join(dir, want) {
			t.Errorf("%s: %s, %v, want %s", path, got, err, want)
		}
	}
	if got, err := resolve("/"); err != nil || got != "/" {
		t.Errorf("/: %s, %v", got, err)
	}
	for _, path := range []string{dir + "/loop", dir + "/loop/s", "/proc/self/root/run/s"} {
		if got, err := resolve(path); !errors.Is(err, unix.ELOOP) {
			t.Errorf("%s: %s, %v, want ELOOP", path, got, err)
		}
	}
}

// A link that is put into a path later, in the place of the socket or of a directory, is
// not followed; a directory that is made anew is.
func TestSocketPathIsSwapped(t *testing.T) {
	top := t.TempDir()
	dir, private := filepath.Join(top, "dir"), filepath.Join(top, "private")
	for _, d := range []string{dir, private} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	secret := newServer(t, "unix", private+"/a")
	if err := os.Symlink("dir", top+"/link"); err != nil {
		t.Fatal(err)
	}
	h := newGuest(t)
	_, control := h.listenSocket(Socket{Path: top + "/link/a", ByPath: true})
	refused := func(what string) {
		t.Helper()
		announce(t, control, 1)
		if n, err := h.next().conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %d bytes, %v", what, n, err)
		}
	}
	if err := os.Symlink(secret.path, dir+"/a"); err != nil {
		t.Fatal(err)
	}
	refused("a link to a socket")
	if err := errors.Join(os.RemoveAll(dir), os.Symlink("private", dir)); err != nil {
		t.Fatal(err)
	}
	refused("a link to its directory")
	if err := errors.Join(os.Remove(dir), os.Remove(top+"/link"), os.Symlink("private", top+"/link"), os.Mkdir(dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	server := newServer(t, "unix", dir+"/a")
	announce(t, control, 1)
	h.next()
	server.accept(t)
	if err := os.Remove(dir + "/a"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/a", []byte(strings.Repeat("x", 10)), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a regular file")
}
