package container

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestOpenTerminal(t *testing.T) {
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	term, err := openTerminal(root, &specs.Box{Height: 33, Width: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer term.master.Close()
	defer term.slave.Close()
	if size, err := unix.IoctlGetWinsize(int(term.slave.Fd()), unix.TIOCGWINSZ); err != nil || size.Row != 33 || size.Col != 1<<16-1 {
		t.Errorf("%+v, %v", size, err)
	}
	if _, err := term.slave.WriteString("line\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(term.master).ReadString('\n'); line != "line\r\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
}

// A container's root can have anything at /dev/pts/ptmx.
func TestOpenTerminalOfNoDevpts(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "dev/pts"), 0o755); err != nil {
		t.Fatal(err)
	}
	ptmx := filepath.Join(dir, "dev/pts/ptmx")
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, test := range map[string]struct {
		make func() error
		want string
	}{
		"nothing": {func() error { return nil }, "open /dev/pts/ptmx: no such file or directory"},
		"file":    {func() error { return os.WriteFile(ptmx, nil, 0o666) }, "is not the terminal multiplexer"},
		"link":    {func() error { return os.Symlink("/dev/ptmx", ptmx) }, "is not the terminal multiplexer"},
		"device":  {func() error { return unix.Mknod(ptmx, unix.S_IFCHR|0o666, int(unix.Mkdev(5, 2))) }, "is not the terminal multiplexer"},
	} {
		if err := test.make(); err != nil {
			t.Skip(err) // mknod is root's
		}
		if _, err := openTerminal(root, nil); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", name, err, test.want)
		}
		_ = os.Remove(ptmx)
	}
}
