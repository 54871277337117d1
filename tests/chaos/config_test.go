package chaos

import (
	"os"
	"strings"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// configure adds lines to the hypervisor's and the agent's table of the
// runtime's configuration, for the pods of this test.
func configure(t *testing.T, d *harness.Daemon, hypervisor, agent string) {
	t.Helper()
	path := d.KataConfigPath()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	const table = "[hypervisor.qemu]\n"
	after := strings.Replace(string(before), table, table+hypervisor+"\n", 1) + "\n[agent.kata]\n" + agent + "\n"
	if !strings.Contains(after, hypervisor) {
		t.Fatalf("no %s in the configuration:\n%s", table, before)
	}
	write(after)
	t.Cleanup(func() { write(string(before)) })
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
