package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// configure adds lines to the hypervisor's and the agent's table of the
// runtime's configuration, for the pods of this test.
func configure(t *testing.T, d *harness.Daemon, hypervisor, agent string) {
	t.Helper()
	dropIn(t, d, "50-test", "[hypervisor.qemu]\n"+hypervisor+"\n[agent.kata]\n"+agent+"\n")
}

// dropIn adds a file to the runtime's configuration, for the pods of this test.
func dropIn(t *testing.T, d *harness.Daemon, name, text string) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(d.KataConfigPath()), "config.d")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name+".toml") // after the harness's
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	})
}

// logLines returns the lines with word that the daemon's log got after offset
// bytes.
func logLines(d *harness.Daemon, offset int64, word string) []string {
	var found []string
	for line := range strings.Lines(d.LogSince(offset, 10000)) {
		if strings.Contains(line, word) {
			found = append(found, line)
		}
	}
	return found
}
