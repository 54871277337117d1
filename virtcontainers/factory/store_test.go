package factory

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/fake"
)

// testInputs returns the inputs of a machine made of a test's files.
func testInputs(t *testing.T) (Inputs, hypervisor.Spec) {
	t.Helper()
	spec := hypervisor.Spec{ID: "one", VCPUs: 1, MemoryMiB: 256}
	dir := t.TempDir()
	for name, path := range map[string]*string{"qemu": &spec.Path, "vmlinux": &spec.Kernel, "initrd": &spec.Initrd} {
		*path = filepath.Join(dir, name)
		if err := os.WriteFile(*path, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return inputsOf(t, spec), spec
}

func inputsOf(t *testing.T, spec hypervisor.Spec) Inputs {
	t.Helper()
	in, err := InputsOf(new(fake.Monitor), spec)
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func keyOf(t *testing.T, in Inputs) Key {
	t.Helper()
	key, err := KeyOf(in)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// What changes the machine changes the key, and what differs only between
// sandboxes does not.
func TestKey(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*hypervisor.Spec)
		same   bool
	}{
		"another sandbox": {func(s *hypervisor.Spec) { s.ID, s.NetworkNamespace = "two", "/run/netns/two" }, true},
		"another user":    {func(s *hypervisor.Spec) { s.Jail = &hypervisor.Jail{UID: 7} }, true},
		"kernel":          {func(s *hypervisor.Spec) { s.Kernel = s.Initrd }, false},
		"parameters":      {func(s *hypervisor.Spec) { s.KernelParams = "quiet" }, false},
		"memory":          {func(s *hypervisor.Spec) { s.MemoryMiB = 512 }, false},
		"vCPUs":           {func(s *hypervisor.Spec) { s.MaxVCPUs = 4 }, false},
		"a file written": {func(s *hypervisor.Spec) {
			if err := os.WriteFile(s.Initrd, []byte("other!"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			in, spec := testInputs(t)
			key := keyOf(t, in)
			tt.change(&spec)
			if got := keyOf(t, inputsOf(t, spec)); (got == key) != tt.same {
				t.Errorf("key %s, it was %s", got, key)
			}
		})
	}
	_, spec := testInputs(t)
	spec.Kernel = "/nonexistent"
	if _, err := InputsOf(new(fake.Monitor), spec); err == nil {
		t.Error("inputs of a kernel that is not there")
	}
}

func TestFirstCPU(t *testing.T) {
	const text = "processor\t: 0\nvendor_id\t: X\ncpu MHz\t\t: 2596.1\nflags\t\t: a b\n\nprocessor\t: 1\nflags\t\t: c\n"
	if got, want := firstCPU(text), "vendor_id\t: X\nflags\t\t: a b"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// fill is a maker that needs no machine.
func fill(_ context.Context, p Place) error {
	return errors.Join(os.WriteFile(filepath.Join(p.Dir, MemoryFile), []byte("memory"), 0o600),
		os.WriteFile(filepath.Join(p.Dir, StateFile), []byte("state"), 0o600))
}

func makeOne(t *testing.T, s Store, in Inputs) Key {
	t.Helper()
	key, err := s.Make(t.Context(), Job{Inputs: in}, fill)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestMakeAndOpen(t *testing.T) {
	in, _ := testInputs(t)
	s := Store{Dir: filepath.Join(t.TempDir(), "a", "b")}
	if _, err := s.Open(keyOf(t, in)); !errdefs.IsNotFound(err) {
		t.Errorf("open before there is a directory: %v", err)
	}
	key := makeOne(t, s, in)
	tpl, err := s.Open(key)
	if err != nil {
		t.Fatal(err)
	}
	defer tpl.Close()
	text := make([]byte, 5)
	if _, err := tpl.State.Read(text); err != nil || string(text) != "state" {
		t.Errorf("the state begins with %q, %v", text, err)
	}
	again, err := s.Make(t.Context(), Job{Inputs: in}, func(context.Context, Place) error { return errors.New("made twice") })
	if again != key || err != nil {
		t.Errorf("make again: %s, %v", again, err)
	}
	list, err := s.List()
	if err != nil || len(list) != 1 || list[0].Key != key || !list[0].Current || list[0].Bytes == 0 || list[0].Created.IsZero() {
		t.Errorf("list: %+v, %v", list, err)
	}
	if err := s.RemoveAll(); err != nil {
		t.Error(err)
	}
	if exists(s.Dir) {
		t.Error("the directory is still there")
	}
	if err := s.RemoveAll(); err != nil {
		t.Errorf("remove nothing: %v", err)
	}
}

// age sets when a template was last used.
func age(t *testing.T, s Store, key Key, ago time.Duration) {
	t.Helper()
	then := time.Now().Add(-ago)
	if err := os.Chtimes(filepath.Join(s.Dir, string(key), infoFile), then, then); err != nil {
		t.Fatal(err)
	}
}

func TestExpire(t *testing.T) {
	const unused, changed = 10 * time.Hour, time.Hour
	for name, tt := range map[string]struct {
		ago          time.Duration
		change, open bool
		stays        bool
	}{
		"new":                    {0, false, false, true},
		"not used for a while":   {9 * time.Hour, false, false, true},
		"not used for long":      {11 * time.Hour, false, false, false},
		"used again":             {11 * time.Hour, false, true, true},
		"just changed":           {50 * time.Minute, true, false, true},
		"changed some time ago":  {70 * time.Minute, true, false, false},
		"changed, and used here": {11 * time.Hour, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			in, spec := testInputs(t)
			s := Store{Dir: filepath.Join(t.TempDir(), "templates")}
			key := makeOne(t, s, in)
			age(t, s, key, tt.ago)
			if tt.change {
				if err := os.WriteFile(spec.Kernel, []byte("changed"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if tt.open {
				tpl, err := s.Open(key)
				if err != nil {
					t.Fatal(err)
				}
				_ = tpl.Close()
			}
			list, err := s.List()
			if err != nil || len(list) != 1 || list[0].Current == tt.change {
				t.Fatalf("list: %+v, %v", list, err)
			}
			removed, err := s.Expire(unused, changed)
			if err != nil || (len(removed) == 0) != tt.stays || exists(filepath.Join(s.Dir, string(key))) != tt.stays {
				t.Errorf("removed %v, %v, used at %v", removed, err, list[0].Used)
			}
		})
	}
}

// Open reports any damage to a template, and the template is then made again.
func TestDamagedTemplate(t *testing.T) {
	in, _ := testInputs(t)
	for name, damage := range map[string]func(dir string) error{
		"no record":            func(dir string) error { return os.Remove(filepath.Join(dir, infoFile)) },
		"empty record":         func(dir string) error { return rewrite(dir, infoFile, "") },
		"other record":         func(dir string) error { return rewrite(dir, infoFile, `{"Key":"00"}`) },
		"long record":          func(dir string) error { return rewrite(dir, infoFile, strings.Repeat(" ", maxInfo+1)) },
		"other state":          func(dir string) error { return rewrite(dir, StateFile, "stale") },
		"no state":             func(dir string) error { return os.Remove(filepath.Join(dir, StateFile)) },
		"no memory":            func(dir string) error { return os.Remove(filepath.Join(dir, MemoryFile)) },
		"a link":               func(dir string) error { return link(dir, MemoryFile, "/etc/passwd") },
		"an empty one":         func(dir string) error { return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)) },
		"not even a directory": func(dir string) error { return errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := Store{Dir: t.TempDir()}
			key := makeOne(t, s, in)
			if err := damage(filepath.Join(s.Dir, string(key))); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Open(key); err == nil || errdefs.IsNotFound(err) {
				t.Errorf("open: %v", err)
			}
			if again := makeOne(t, s, in); again != key {
				t.Errorf("made %s, want %s", again, key)
			}
			tpl, err := s.Open(key)
			if err != nil {
				t.Fatal(err)
			}
			_ = tpl.Close()
		})
	}
}

func rewrite(dir, name, text string) error {
	path := filepath.Join(dir, name)
	return errors.Join(os.Remove(path), os.WriteFile(path, []byte(text), 0o400))
}

func link(dir, name, to string) error {
	path := filepath.Join(dir, name)
	return errors.Join(os.Remove(path), os.Symlink(to, path))
}

// A maker that fails leaves nothing. The next maker removes what a dead one
// left, and templates of old inputs.
func TestTidy(t *testing.T) {
	in, spec := testInputs(t)
	s := Store{Dir: t.TempDir()}
	broken := errors.New("no machine")
	if _, err := s.Make(t.Context(), Job{Inputs: in}, func(context.Context, Place) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("make: %v", err)
	}
	if _, err := s.Make(t.Context(), Job{Inputs: in}, func(context.Context, Place) error { return nil }); err == nil {
		t.Error("a template without files")
	}
	if list, err := s.Failures(); err != nil || len(list) != 1 || list[0].Key != keyOf(t, in) || list[0].Times != 2 {
		t.Errorf("failures: %+v, %v", list, err)
	}
	old := makeOne(t, s, in)
	if err := os.Mkdir(filepath.Join(s.Dir, makingPrefix+"dead"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spec.Kernel, []byte("another kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != 1 || list[0].Current {
		t.Errorf("list: %+v, %v", list, err)
	}
	key := makeOne(t, s, inputsOf(t, spec))
	if key == old {
		t.Fatal("another kernel has the same key")
	}
	entries, err := os.ReadDir(s.Dir)
	var names []string
	for _, e := range entries {
		if e.Name() == failedPrefix+string(old) {
			continue // it is remembered for a day
		}
		names = append(names, e.Name())
	}
	if err != nil || len(names) != 2 || names[0] != string(key) || names[1] != lockFile {
		t.Errorf("left in the directory: %q, %v", names, err)
	}
}

// An open of a template that is being removed gets all of it, or finds none: one that
// is damaged would be remembered as a failure.
func TestOpenWhileRemoved(t *testing.T) {
	in, _ := testInputs(t)
	s := Store{Dir: t.TempDir()}
	for range 100 {
		key := makeOne(t, s, in)
		removed := make(chan error, 1)
		go func() { removed <- s.Remove(key) }()
		for err := error(nil); err == nil; {
			var tpl *Template
			if tpl, err = s.Open(key); err == nil {
				err = tpl.Close()
			} else if !errdefs.IsNotFound(err) {
				t.Error(err)
			}
		}
		if err := <-removed; err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneMaker(t *testing.T) {
	in, _ := testInputs(t)
	s := Store{Dir: t.TempDir()}
	_, err := s.Make(t.Context(), Job{Inputs: in}, func(ctx context.Context, place Place) error {
		if _, err := s.Make(ctx, Job{Inputs: in}, fill); !errdefs.IsUnavailable(err) {
			t.Errorf("a second maker: %v", err)
		}
		if err := s.RemoveAll(); !errdefs.IsUnavailable(err) {
			t.Errorf("remove all meanwhile: %v", err)
		}
		return fill(ctx, place)
	})
	if err != nil {
		t.Error(err)
	}
}

// A directory that others can write to is not used, and nothing outside it is
// removed.
func TestUnsafe(t *testing.T) {
	in, _ := testInputs(t)
	s := Store{Dir: t.TempDir()}
	if err := os.Chmod(s.Dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Make(t.Context(), Job{Inputs: in}, fill); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("make in a directory that every user can write to: %v", err)
	}
	for _, key := range []Key{"", "..", "../x", "lock", "00"} {
		if err := s.Remove(key); !errdefs.IsInvalidArgument(err) {
			t.Errorf("remove %q: %v", key, err)
		}
	}
}

// A directory that is there already keeps its mode: template_path = "/run" locks no other
// user out. One that others use is refused.
func TestSharedDirectory(t *testing.T) {
	for name, tt := range map[string]struct {
		mode os.FileMode
		file string
		good bool
	}{
		"of others":            {0o755, "resolv.conf", false},
		"of others, traversed": {0o711, "sshd.pid", false},
		"empty":                {0o755, "", true},
		"a store":              {0o755, failedPrefix + strings.Repeat("ab", keyBytes), true},
		"a file system's root": {0o755, "lost+found", true},
		"root's, with a note":  {0o700, "README", true},
		"only this user's":     {0o500, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := Store{Dir: t.TempDir()}
			if tt.file != "" {
				if err := os.WriteFile(filepath.Join(s.Dir, tt.file), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(s.Dir, tt.mode); err != nil {
				t.Fatal(err)
			}
			err := s.prepare()
			if (err == nil) != tt.good || err != nil && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "factory.template_path")) {
				t.Errorf("prepare: %v", err)
			}
			if info, err := os.Stat(s.Dir); err != nil || info.Mode().Perm() != tt.mode {
				t.Errorf("its mode is %v now, %v; want %v", info.Mode().Perm(), err, tt.mode)
			}
		})
	}
}

// A template's memory takes no room for pages of zeros.
func TestMadeTemplateIsThin(t *testing.T) {
	const page, pages = 4096, 64
	memory := make([]byte, pages*page)
	copy(memory, "first page")
	copy(memory[(pages-1)*page:], "last page")
	s, in := Store{Dir: filepath.Join(t.TempDir(), "templates")}, inputsOf(t, hypervisor.Spec{})
	key, err := s.Make(t.Context(), Job{Inputs: in}, func(_ context.Context, p Place) error {
		return errors.Join(os.WriteFile(filepath.Join(p.Dir, MemoryFile), memory, 0o600), os.WriteFile(filepath.Join(p.Dir, StateFile), nil, 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir, string(key), MemoryFile)
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, memory) {
		t.Errorf("the memory has changed: %d bytes, %v", len(got), err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Blocks*512 > pages/2*page {
		t.Errorf("it takes %d bytes, %v", st.Blocks*512, err)
	}
}
