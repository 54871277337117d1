package spec

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"
)

// An image's files of users are not opened unless they are regular: opening a FIFO
// waits for its writer, and opening a device node is a call of its driver on the
// host.
func TestUserFilesThatAreNotFiles(t *testing.T) {
	for kind, node := range map[string]func(name string) error{
		"FIFO":      func(name string) error { return unix.Mkfifo(name, 0o600) },
		"device":    func(name string) error { return unix.Mknod(name, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) },
		"link":      func(name string) error { return os.Symlink("/fifo", name) },
		"directory": func(name string) error { return os.Mkdir(name, 0o700) },
	} {
		for _, file := range []string{"passwd", "group"} {
			t.Run(kind+" "+file, func(t *testing.T) {
				root := rootWithUsers(t)
				name := filepath.Join(root, "etc", file)
				if err := os.Remove(name); err != nil {
					t.Fatal(err)
				}
				if err := node(name); err != nil {
					t.Skip(err)
				}
				if err := unix.Mkfifo(filepath.Join(root, "fifo"), 0o600); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() {
					_, err := New(context.Background(), root, v1.ImageConfig{User: "app:app", Cmd: []string{"x"}}, Options{ID: "c"})
					done <- err
				}()
				select {
				case err := <-done:
					if err == nil || !strings.Contains(err.Error(), "/etc/"+file+" is not a regular file") {
						t.Errorf("error %v", err)
					}
				case <-time.After(5 * time.Second):
					t.Error("it waits for the file")
				}
			})
		}
	}
}

// Links are followed within the image, absolute ones too.
func TestUserFileBehindALink(t *testing.T) {
	root := rootWithUsers(t)
	if err := os.Rename(filepath.Join(root, "etc/passwd"), filepath.Join(root, "users")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/users", filepath.Join(root, "etc/passwd")); err != nil {
		t.Fatal(err)
	}
	s, err := New(context.Background(), root, v1.ImageConfig{User: "app", Cmd: []string{"x"}}, Options{ID: "c"})
	if err != nil || s.Process.User.UID != 1000 {
		t.Errorf("%v, %v", s, err)
	}
}
