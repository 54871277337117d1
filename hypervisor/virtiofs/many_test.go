package virtiofs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// filesEach is how many files a directory of TestManyFiles has.
const filesEach = 1000

func parseCount(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%q: want a number of files", knownEnv, text)
	}
	return n, nil
}

// fileName returns the name of the nth directory or file, of a typical length.
func fileName(n int) string { return fmt.Sprintf("a-name-of-%06d", n) }

// makeFiles makes that many empty files.
func makeFiles(dir string, count int) error {
	for i := range count {
		sub := filepath.Join(dir, fileName(i/filesEach))
		if i%filesEach == 0 {
			if err := os.Mkdir(sub, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mknod(filepath.Join(sub, fileName(i%filesEach)), unix.S_IFREG|0o644, 0); err != nil {
			return err
		}
	}
	return nil
}

// pssOf returns this process's proportional set size in KiB.
func pssOf(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/smaps_rollup")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "Pss:" {
			n, err := strconv.Atoi(words[1])
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("there is no Pss in smaps_rollup")
	return 0
}
