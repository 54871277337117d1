package modules

import (
	"bytes"
	"compress/gzip"
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
		"/m/nfnetlink.ko.gz", "/m/nf_tables.ko.gz", "/m/other.ko.gz"
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

func packed(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestUnpack(t *testing.T) {
	good := packed(t, []byte("module"))
	if got, err := unpack(bytes.NewReader(good), 6); err != nil || string(got) != "module" {
		t.Errorf("got %q, %v", got, err)
	}
	for name, data := range map[string][]byte{
		"not packed": []byte("module"),
		"cut":        good[:len(good)-4],
		"too large":  packed(t, []byte("modules")),
	} {
		if _, err := unpack(bytes.NewReader(data), 6); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// The kernel's refusal is passed on. What these files hold is no module, so
// that nothing happens to the machine that runs the test.
func TestLoadFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string][]byte{"a.ko": []byte("no module"), "b.ko.gz": packed(t, []byte("no module"))} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		err := LoadFile(path, "")
		if !errors.Is(err, unix.ENOEXEC) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) {
			t.Errorf("%s: %v, want the kernel's refusal", name, err)
		}
	}
	if err := LoadFile(filepath.Join(dir, "gone.ko"), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}
