package guest

import (
	"os"
	"path/filepath"
	"testing"
)

// Users' files are protected from each other as on a host, as far as the kernel can. What
// its command line sets is the operator's.
func TestProtectFiles(t *testing.T) {
	f := newMachine(t)
	for _, name := range []string{"fs/protected_symlinks", "fs/protected_fifos", "fs/protected_regular"} {
		f.write(t, filepath.Join(f.proc, "sys", name), "0")
	}
	f.write(t, f.proc+"/cmdline", "quiet sysctl.fs.protected_fifos=0\n")
	must(t, protectFiles(f.proc))
	for name, want := range map[string]string{"fs/protected_symlinks": "1", "fs/protected_fifos": "0", "fs/protected_regular": "2"} {
		if text, err := os.ReadFile(filepath.Join(f.proc, "sys", name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v; want %s", name, text, err, want)
		}
	}
}
