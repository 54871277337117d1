package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The users of a container are its own, not its image's.
func TestUsersOfAContainer(t *testing.T) {
	both(t, func(t *testing.T, s *Store) {
		root := containerRoot(t, s)
		if err := os.WriteFile(filepath.Join(root, "etc/passwd"), []byte("bob"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := users(t, s); got["passwd"] != "bob" || got["group"] != "wheel" {
			t.Errorf("users %q", got)
		}
	})
}

// The container can have anything in place of these files, which must not make the host
// wait, call a driver, or read its own files.
func TestUsersThatAreNotFiles(t *testing.T) {
	for what, put := range map[string]func(path string) error{
		"FIFO":   func(path string) error { return unix.Mkfifo(path, 0o600) },
		"device": func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5))) },
		"large": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, mostOfUsers+1)
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStore(t)
			passwd := filepath.Join(containerRoot(t, s), "etc/passwd")
			_ = os.Remove(passwd)
			if err := put(passwd); err != nil {
				t.Skip(err)
			}
			err := s.Users(t.Context(), "c", func(string) error { return nil })
			if err == nil || !strings.Contains(err.Error(), "/etc/passwd of the container") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestUsersBehindALink(t *testing.T) {
	s := newStore(t)
	root := containerRoot(t, s)
	passwd := filepath.Join(root, "etc/passwd")
	_ = os.Remove(passwd)
	if err := os.Symlink("/../../users", passwd); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "users"), []byte("bob"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := users(t, s)["passwd"]; got != "bob" {
		t.Errorf("users %q", got)
	}
}

// containerRoot makes container c and returns the directory that has what it changes.
func containerRoot(t *testing.T, s *Store) string {
	t.Helper()
	img := add(t, s, "i", layerOf(t, dirEntry("etc", 0o755), fileEntry("etc/passwd", "root"), fileEntry("etc/group", "wheel")), layerOf(t, fileEntry("top", "")))
	dir, err := s.MakeContainer("c", img)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(dir, "rootfs")
	mounts, err := s.Rootfs("c", root)
	if err != nil {
		t.Fatal(err)
	}
	if len(mounts) > 0 {
		root = filepath.Join(dir, "upper")
	}
	if err := os.MkdirAll(filepath.Join(root, "etc"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

// users returns the content of the files, by their names.
func users(t *testing.T, s *Store) map[string]string {
	t.Helper()
	seen := map[string]string{}
	err := s.Users(t.Context(), "c", func(root string) error {
		for _, name := range userFiles {
			data, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				return err
			}
			seen[filepath.Base(name)] = string(data)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return seen
}
