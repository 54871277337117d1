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
