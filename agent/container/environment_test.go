package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestEnvironment(t *testing.T) {
	tests := []struct {
		env, want []string
		err       string
	}{
		{nil, []string{"HOME=/found"}, ""},
		{[]string{"A=1", "B=2", "A=3"}, []string{"B=2", "A=3", "HOME=/found"}, ""},
		{[]string{"HOME=/h", "A="}, []string{"HOME=/h", "A="}, ""},
		{[]string{"HOME=/h", "HOME="}, []string{"HOME=/found"}, ""},
		{[]string{"A=1=2"}, []string{"A=1=2", "HOME=/found"}, ""},
		{[]string{"A"}, nil, "missing '='"},
		{[]string{"=1"}, nil, "name cannot be empty"},
		{[]string{"A=b\x00c"}, nil, `"A": contains nul byte`},
	}
	for _, test := range tests {
		got, err := environment(test.env, func() string { return "/found" })
		if diff := cmp.Diff(test.want, got); diff != "" || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%q: %v, %s", test.env, err, diff)
		}
	}
}

// A container's root can have anything at /etc/passwd.
func TestHomeOf(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "passwd")
	write := func(path, text string) func() error {
		return func() error { return os.WriteFile(path, []byte(text), 0o644) }
	}
	if err := write(outside, "x:x:5:5::/outside:\n")(); err != nil {
		t.Fatal(err)
	}
	etc := filepath.Join(dir, "etc")
	if err := os.Mkdir(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	passwd := filepath.Join(etc, "passwd")
	tests := map[string]struct {
		make func() error
		want string
	}{
		"none":         {func() error { return nil }, "/"},
		"listed":       {write(passwd, "root:x:0:0:root:/root:/bin/sh\nx:x:5:5::/home/x:\n"), "/home/x"},
		"not listed":   {write(passwd, "root:x:0:0:root:/root:/bin/sh\n"), "/"},
		"a long line":  {write(passwd, strings.Repeat("x", 1<<20)), "/"},
		"a FIFO":       {func() error { return unix.Mkfifo(passwd, 0o644) }, "/"},
		"a directory":  {func() error { return os.Mkdir(passwd, 0o755) }, "/"},
		"a link out":   {func() error { return os.Symlink("../../.."+outside, passwd) }, "/"},
		"a magic link": {func() error { return os.Symlink("/proc/self/exe", passwd) }, "/"},
		"a link":       {func() error { return os.Symlink("/own", passwd) }, "/inside"},
	}
	if err := write(filepath.Join(dir, "own"), "x:x:5:5::/inside:\n")(); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for name, test := range tests {
		if err := test.make(); err != nil {
			t.Fatal(err)
		}
		if got := homeOf(root, 5); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		_ = os.Remove(passwd)
	}
}

// What is not a regular file is not opened: to open a device may have effects, and the
// container may not be allowed to.
func TestHomeOfOpensFilesOnly(t *testing.T) {
	dir := t.TempDir()
	passwd := filepath.Join(dir, "etc", "passwd")
	if err := os.Mkdir(filepath.Dir(passwd), 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tests := map[string]struct {
		make   func() error
		opened bool
	}{
		"a file":   {func() error { return os.WriteFile(passwd, nil, 0o644) }, true},
		"a FIFO":   {func() error { return unix.Mkfifo(passwd, 0o644) }, false},
		"a device": {func() error { return unix.Mknod(passwd, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))) }, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if err := test.make(); err != nil {
				t.Skip(err) // mknod is root's
			}
			defer os.Remove(passwd)
			watch, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(watch)
			if _, err := unix.InotifyAddWatch(watch, passwd, unix.IN_OPEN); err != nil {
				t.Fatal(err)
			}
			homeOf(root, 5)
			n, err := unix.Read(watch, make([]byte, unix.SizeofInotifyEvent))
			if opened := n > 0; opened != test.opened {
				t.Errorf("it was opened: %t, want %t (%v)", opened, test.opened, err)
			}
		})
	}
}
