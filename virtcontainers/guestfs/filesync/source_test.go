package filesync

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// aSecret makes a directory of the host that is not copied.
func aSecret(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "secret")
	write(t, dir+"/key", "secret")
	return dir
}

// A directory that is swapped for a link, or another directory, is followed where it is
// now; the link is not.
func TestSourceIsSwapped(t *testing.T) {
	for name, swap := range map[string]func(path string){
		"a link":            func(path string) { must(t, os.Symlink(aSecret(t), path)) },
		"another directory": func(path string) { must(t, os.Rename(aSecret(t), path)) },
	} {
		t.Run(name, func(t *testing.T) {
			top, g := t.TempDir(), newGuest(t)
			source, moved := filepath.Join(top, "source"), filepath.Join(top, "moved")
			write(t, source+"/a", "1")
			c := start(t, g, source, roomy)
			must(t, os.Rename(source, moved))
			swap(source)
			c.watch.signal()
			write(t, moved+"/a", "2")
			g.follows(t, moved)
		})
	}
}

// Nor is a mount over it, as with a bind mount.
func TestMountOverTheSource(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	source, g := t.TempDir(), newGuest(t)
	write(t, source+"/a", "1")
	c := start(t, g, source, roomy)
	before := words(t, source)
	must(t, unix.Mount(aSecret(t), source, "", unix.MS_BIND, ""))
	t.Cleanup(func() { must(t, unix.Unmount(source, unix.MNT_DETACH)) })
	must(t, c.update(t.Context()))
	if diff := cmp.Diff(before, words(t, g.path(target))); diff != "" {
		t.Error(diff)
	}
}

// The directory of a single file is not looked up again, and a link in the file's place
// is not followed: neither for copying it nor for Back.
func TestFileIsSwapped(t *testing.T) {
	top, g := t.TempDir(), newGuest(t)
	source, moved, secret := filepath.Join(top, "source"), filepath.Join(top, "moved"), aSecret(t)
	write(t, source+"/key", "1")
	write(t, source+"/other", "other")
	c := start(t, g, source+"/key", roomy)
	must(t, os.Rename(source, moved))
	must(t, os.Symlink(secret, source))
	c.watch.signal()
	write(t, moved+"/key", "2")
	g.follows(t, moved+"/key")

	must(t, os.Remove(moved+"/key"))
	must(t, os.Symlink("other", moved+"/key"))
	c.stop()
	must(t, c.update(t.Context()))
	if got, err := os.ReadFile(g.path(target)); err != nil || string(got) != "2" {
		t.Errorf("in the guest: %q, %v", got, err)
	}

	must(t, os.Remove(moved+"/key"))
	write(t, moved+"/key", "3")
	must(t, os.WriteFile(g.path(target), []byte("last words"), 0o600))
	must(t, c.Back(t.Context(), g))
	for path, want := range map[string]string{moved + "/key": "last words", moved + "/other": "other", secret + "/key": "secret"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", path, got, err, want)
		}
	}
}

func TestSourceGone(t *testing.T) {
	source, g := filepath.Join(t.TempDir(), "source"), newGuest(t)
	must(t, os.Mkdir(source, 0o750))
	c := start(t, g, source, roomy)
	before := words(t, g.path(target))
	must(t, os.Remove(source))
	c.watch.signal() // An open directory's removal is no event.
	c.running.Wait()
	if diff := cmp.Diff(before, words(t, g.path(target))); diff != "" {
		t.Error(diff)
	}
}
