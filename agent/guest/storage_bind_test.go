package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// newBinder returns a Mounter in a temporary directory, with a volume in it.
func newBinder(t *testing.T) (m *Mounter, volume string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	m = NewMounter(nil)
	m.run = t.TempDir()
	volume = filepath.Join(m.run, "files", "1")
	must(t, os.MkdirAll(filepath.Join(volume, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(volume, "sub", "file"), []byte("content"), 0o600))
	return m, volume
}

func (m *Mounter) bind(source, target string) []*api.Storage {
	return []*api.Storage{{Driver: "bind", Source: source, Target: filepath.Join(m.run, "s", target)}}
}

func TestMountBind(t *testing.T) {
	m, volume := newBinder(t)
	dir, file := m.bind(volume+"/sub", "1"), m.bind(volume+"/sub/file", "2")
	must(t, m.Mount(t.Context(), dir))
	defer func() { must(t, m.Unmount(dir)) }()
	must(t, m.Mount(t.Context(), file))
	defer func() { must(t, m.Unmount(file)) }()
	// The mount does not follow what is put in its place later.
	must(t, os.Rename(volume+"/sub", volume+"/moved"))
	must(t, os.Symlink("/", volume+"/sub"))
	for _, path := range []string{"1/file", "2"} {
		if got, err := os.ReadFile(filepath.Join(m.run, "s", path)); err != nil || string(got) != "content" {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
}

func TestMountBindMakesWhatIsMissing(t *testing.T) {
	m, volume := newBinder(t)
	s := m.bind(volume+"/sub/a/b", "1")
	s[0].Options = []string{"mode=02770", "uid=5", "gid=6"}
	must(t, m.Mount(t.Context(), s))
	must(t, m.Unmount(s))
	for path, want := range map[string]unix.Stat_t{"sub": {Mode: 0o755}, "sub/a": {Mode: 0o2770, Uid: 5, Gid: 6}, "sub/a/b": {Mode: 0o2770, Uid: 5, Gid: 6}} {
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(volume, path), &st))
		if st.Mode&0o7777 != want.Mode || st.Uid != want.Uid || st.Gid != want.Gid {
			t.Errorf("%s: mode %#o of %d:%d", path, st.Mode, st.Uid, st.Gid)
		}
	}
	s[0].Options = []string{"mode=755"}
	if err := m.Mount(t.Context(), s); !errdefs.IsInvalidArgument(err) {
		t.Errorf("half the options: %v", err)
	}
	must(t, os.Symlink("/", volume+"/link"))
	s = m.bind(volume+"/link/katabox-test", "1")
	s[0].Options = []string{"mode=755", "uid=0", "gid=0"}
	if err := m.Mount(t.Context(), s); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("over a link: %v", err)
	}
}

func TestMountBindRefuses(t *testing.T) {
	m, volume := newBinder(t)
	must(t, os.Symlink("/", volume+"/link"))
	must(t, os.Symlink("sub", volume+"/near"))
	for _, test := range []struct {
		source string
		is     func(error) bool
		want   string
	}{
		{volume + "/link/etc", errdefs.IsInvalidArgument, "symbolic link"},
		{volume + "/link", errdefs.IsInvalidArgument, "symbolic link"},
		{volume + "/near/file", errdefs.IsInvalidArgument, "symbolic link"},
		{volume + "/none", errdefs.IsNotFound, "does not exist"},
		{volume + "/../../s", errdefs.IsInvalidArgument, "clean path"},
		{"/etc", errdefs.IsInvalidArgument, "clean path"},
		{filepath.Dir(volume), errdefs.IsInvalidArgument, "clean path"},
	} {
		err := m.Mount(t.Context(), m.bind(test.source, "1"))
		if !test.is(err) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.source, err, test.want)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(m.run, "s", "1"), &st); err == nil {
		t.Error("a target is left")
	}
}
