package client

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exception is a test of the suite that need not pass with Katabox, or is not
// run.
type exception struct{ name, why string }

// known is the list of differences. What is only not implemented yet must not
// be in it.
var known = []exception{
	{"TestKillContainerDeletedByRunc", "removes the container below the shim by `runc delete --force`, which knows no container of another runtime and says it did"},
	{"TestContainerKillInitPidHost", "wants the host's PID namespace, which is refused; with `allow_host_namespaces = true` it passes"},
	{"TestContainerKillAll", "as above"},
}

// left are patterns of tests that are not run with any runtime unless
// requested.
var left = []exception{
	{"TestCheckpoint.*", "wants CRIU on the host"},
	{"TestIssue9103|TestIssue10589", "wants a double of runc that fails on command"},
	{"TestRestartMonitor", "counts the seconds until a container is back"},
	{"TestContainerExecLargeOutputWithTTY", "a hundred times seven megabytes through a terminal: minutes with runc, too"},
	{"TestDaemonCustomCgroup|TestMigration|TestMountManager|TestMountAtRuntime|TestClientTTRPC.*", "runs no container"},
	{"TestContentClient|TestSnapshotterClient|TestConvert|TestImage.*|TestTransfer.*|TestExport.*|TestImport|TestPullFetchAllContent|TestLeaseResources", "as above"},
}

// docs/compat.md has the same lists, between its two marks.
func TestCompatPageListsWhatIsKnown(t *testing.T) {
	const page = "docs/compat.md"
	data, err := os.ReadFile(filepath.Join(bed.layout.Root, page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "<!-- client: begin -->\n")
	got, _, end := strings.Cut(rest, "<!-- client: end -->")
	if !ok || !end {
		t.Fatalf("%s lacks its marks", page)
	}
	if want := knownTable(); got != want {
		t.Errorf("%s differs from the lists in the test; between the marks it should say:\n%s", page, want)
	}
}

// knownTable returns the lists in the page's format.
func knownTable() string {
	var b strings.Builder
	b.WriteString("| test | | why |\n| --- | --- | --- |\n")
	for _, k := range known {
		fmt.Fprintf(&b, "| `%s` | fails | %s |\n", k.name, k.why)
	}
	for _, l := range left {
		fmt.Fprintf(&b, "| `%s` | not run with either runtime | %s |\n", strings.ReplaceAll(l.name, "|", "`, `"), l.why)
	}
	return b.String()
}
