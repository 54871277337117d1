package virtiofs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/hypervisor/virtiofs/wire"
	"github.com/katabox/katabox/internal/ownthread"
)

// What a guest changes by a path is the file that is there now, also within the second
// for which its kernel has the name of the one before.
func TestHostReplacesWhatIsChanged(t *testing.T) {
	dir := t.TempDir()
	inMount(t, "TestHostReplacesWhatIsChangedInside", mountDir(t, dir, serving{policy: passthrough.Rootfs}), envHost+"="+dir)
}

// TestHostReplacesWhatIsChangedInside is what TestHostReplacesWhatIsChanged runs.
func TestHostReplacesWhatIsChangedInside(t *testing.T) {
	dir, host := inside(t), os.Getenv(envHost)
	for name, tc := range map[string]struct {
		change func(path string) error
		done   func(path string) bool
	}{
		"chmod": {
			func(path string) error { return os.Chmod(path, 0o640) },
			func(path string) bool { info, err := os.Stat(path); return err == nil && info.Mode() == 0o640 },
		},
		"truncate": {
			func(path string) error { return os.Truncate(path, 1) },
			func(path string) bool { info, err := os.Stat(path); return err == nil && info.Size() == 1 },
		},
		"setxattr": {
			func(path string) error { return unix.Setxattr(path, "user.a", []byte("1"), 0) },
			func(path string) bool { n, err := unix.Getxattr(path, "user.a", nil); return err == nil && n == 1 },
		},
		"link": {
			func(path string) error { return os.Link(path, path+"2") },
			func(path string) bool {
				text, err := os.ReadFile(path + "2")
				return err == nil && string(text) == "new"
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path, there := filepath.Join(dir, name), filepath.Join(host, name)
			if err := os.WriteFile(there, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
			replace(t, there, "new")
			if err := tc.change(path); err != nil {
				t.Error(err)
			}
			if !tc.done(there) {
				t.Errorf("%s has not been changed", there)
			}
		})
	}
}

// removexattr is for the file that is there now, as the other changes are.
func TestRemoveXattrOfWhatWasReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, dir)
	old := c.mustLookup(1, "f").NodeId
	ask[struct{}](c, wire.Release, old, &fuse.ReleaseIn{Fh: c.open(old, unix.O_RDONLY).Fh})
	replace(t, path, "")
	if errno, _ := call(c, wire.Removexattr, old, &fuse.InHeader{}, name("user.a")); errno != unix.ESTALE {
		t.Errorf("%v, want ESTALE", errno)
	}
}

// A name that the guest's kernel knows to be absent, and that the host has made since,
// is opened as what it is.
func TestHostMakesWhatIsCreated(t *testing.T) {
	dir := t.TempDir()
	inMount(t, "TestHostMakesWhatIsCreatedInside", mountDir(t, dir, serving{policy: passthrough.Rootfs}), envHost+"="+dir)
}

// TestHostMakesWhatIsCreatedInside is what TestHostMakesWhatIsCreated runs.
func TestHostMakesWhatIsCreatedInside(t *testing.T) {
	dir, host := inside(t), os.Getenv(envHost)
	for _, tc := range []struct {
		name string
		make func(path string) error
		want error
	}{
		{"file", func(path string) error { return os.WriteFile(path, nil, 0o600) }, nil},
		{"pipe", func(path string) error { return unix.Mkfifo(path, 0o600) }, nil},
		{"link", func(path string) error { return os.Symlink("file", path) }, nil},
		{"directory", func(path string) error { return os.Mkdir(path, 0o700) }, unix.EISDIR},
	} {
		path := filepath.Join(dir, tc.name)
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", tc.name, err)
		}
		if err := tc.make(filepath.Join(host, tc.name)); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT, 0o600)
		if err == nil {
			_ = unix.Close(fd)
		}
		if err != tc.want { //nolint:errorlint // an errno
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
}

// An open with O_CREAT of a file that the host has made meanwhile gives a user without
// permission no access, and truncates nothing.
func TestHostMakesWhatAUserCreates(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // a directory for all users, as /tmp is
		t.Fatal(err)
	}
	inMount(t, "TestHostMakesWhatAUserCreatesInside", mountDir(t, dir, serving{policy: passthrough.Rootfs}), envHost+"="+dir)
}

// TestHostMakesWhatAUserCreatesInside is what TestHostMakesWhatAUserCreates runs.
func TestHostMakesWhatAUserCreatesInside(t *testing.T) {
	t.Chdir(inside(t)) // the directories above are root's alone
	host := os.Getenv(envHost)
	for _, tc := range []struct {
		name string
		mode os.FileMode
		want error
		left string
	}{{"secret", 0o600, unix.EACCES, "text"}, {"public", 0o666, nil, ""}} {
		if _, err := os.Lstat(tc.name); !os.IsNotExist(err) {
			t.Errorf("%s: %v", tc.name, err)
		}
		path := filepath.Join(host, tc.name)
		if err := errors.Join(os.WriteFile(path, []byte("text"), 0o600), os.Chmod(path, tc.mode)); err != nil {
			t.Fatal(err)
		}
		opened := make(chan error)
		ownthread.Go(func() { opened <- createAs(1000, tc.name) })
		if err := <-opened; err != tc.want { //nolint:errorlint // an errno
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
		if text, err := os.ReadFile(path); string(text) != tc.left || err != nil {
			t.Errorf("%s has %q afterwards, want %q (%v)", tc.name, text, tc.left, err)
		}
	}
}

// createAs truncates or makes a file as a user, which the calling thread remains.
func createAs(uid int, name string) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return errno
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}
