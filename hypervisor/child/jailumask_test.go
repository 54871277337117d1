package child

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The jail's user reaches what the jail shows, whatever umask the engine has.
func TestJailIsIndependentOfTheUmask(t *testing.T) {
	jail := shellJail(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	jail.Files = []Shown{{file, "/some/where/file"}}
	jail.Devices = []string{"/dev/zero"}
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	if got := jailed(t, jail, "cat /some/where/file; head -c 1 /dev/zero | wc -c; umask"); got != "text1\n0077\n" {
		t.Errorf("it says %q", got)
	}
}
