package container

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/standalone/usernet"
)

// All users of the container can read its files, whatever this process's umask is.
func TestFilesAreReadable(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	m, _, dir := newContainer(t, "c")
	c := &Container{process: process{Name: "c"}, m: m, dir: dir, net: &usernet.Net{}}
	if err := c.writeFiles(t.Context(), &Options{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"hostname", "hosts", "resolv.conf"} {
		info, err := os.Stat(filepath.Join(dir, "etc", name))
		if err != nil || info.Mode() != 0o644 {
			t.Errorf("%s: %v, %v; want 0644", name, info.Mode(), err)
		}
	}
}
