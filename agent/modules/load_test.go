package modules

import (
	"archive/zip"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// recorder is a Loader that fails for some paths.
type recorder struct {
	broken []string
	calls  []string
}

func (r *recorder) load(path, params string) error {
	for _, broken := range r.broken {
		if path == broken {
			return errors.New("broken")
		}
	}
	r.calls = append(r.calls, strings.TrimSpace(path+" "+params))
	return nil
}

func TestLoad(t *testing.T) {
	list := testList(t)
	const intel, crc, nfnetlink, tables, other = "/m/crc32c-intel.ko", "/m/libcrc32c.ko",
		"/m/modules.zip/nfnetlink.ko", "/m/modules.zip/nf_tables.ko", "/m/modules.zip/other.ko"
	for _, test := range []struct {
		about, name, params string
		broken, want        []string
		err                 string
	}{
		{about: "needs first", name: "nf_tables", params: "a=1", want: []string{intel, crc, nfnetlink, tables + " a=1"}},
		{about: "a soft need may fail", name: "nf_tables", broken: []string{intel}, want: []string{crc, nfnetlink, tables}},
		{about: "a need may not", name: "nf_tables", broken: []string{crc}, want: []string{intel}, err: "libcrc32c, which nf_tables needs"},
		{about: "soft for one, needed by another", name: "other", broken: []string{intel}, err: "crc32c_intel, which other needs"},
		{about: "the module itself", name: "other", broken: []string{other}, want: []string{intel, crc}, err: "load module other: broken"},
	} {
		r := recorder{broken: test.broken}
		err := list.Load(list.Find(test.name), test.params, r.load)
		if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: error %v, want %q", test.about, err, test.err)
		}
		if diff := cmp.Diff(test.want, r.calls); diff != "" {
			t.Errorf("%s: %s", test.about, diff)
		}
	}
}

// zipFile makes a zip file with one file and returns the path.
func zipFile(t *testing.T, name, data string) string {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	f, err := w.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte(data)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return written(t, "test.zip", out.Bytes())
}

func written(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestUnpack(t *testing.T) {
	good := zipFile(t, "a.ko", strings.Repeat("module", 100))
	if got, err := unpack(good, "a.ko", 600); err != nil || string(got) != strings.Repeat("module", 100) {
		t.Errorf("got %q, %v", got, err)
	}
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	damaged[len("PK..")+26+len("a.ko")+3] ^= 0xff // in the content, after the header
	for _, test := range []struct {
		about, archive, name, want string
		limit                      uint64
	}{
		{"no such file in it", good, "b.ko", "find b.ko", 600},
		{"too large", good, "a.ko", "600 bytes are above 599", 599},
		{"no such archive", good + ".gone", "a.ko", "no such file", 600},
		{"cut", written(t, "cut.zip", whole[:len(whole)-4]), "a.ko", "not a valid zip file", 600},
		{"damaged", written(t, "bad.zip", damaged), "a.ko", "unpack a.ko", 600},
	} {
		_, err := unpack(test.archive, test.name, test.limit)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.about, err, test.want)
		}
	}
}

// The kernel's refusal is passed on. These files are not modules, so the test
// does not affect the machine.
func TestLoadFileIsRefused(t *testing.T) {
	for _, path := range []string{written(t, "a.ko", []byte("no module")), zipFile(t, "b.ko", "no module") + "/b.ko"} {
		err := LoadFile(path, "")
		if !errors.Is(err, unix.ENOEXEC) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
			t.Errorf("%s: %v, want the kernel's refusal", path, err)
		}
	}
	for _, path := range []string{filepath.Join(t.TempDir(), "gone.ko"), filepath.Join(t.TempDir(), "gone.zip/a.ko")} {
		if err := LoadFile(path, ""); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v, want that it is not there", path, err)
		}
	}
}

func TestLive(t *testing.T) {
	dir := t.TempDir()
	for name, state := range map[string]string{"bridge": "live\n", "stp": "coming\n", "builtin": ""} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if state == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name, "initstate"), []byte(state), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]bool{"bridge": true, "stp": false, "builtin": false, "llc": false} {
		if got := live(dir, name); got != want {
			t.Errorf("%s is live: %v", name, got)
		}
	}
}
