package client

import (
	"fmt"
	"strings"
	"testing"
)

// exception is a test of the suite that need not pass with Katabox, or is not
// run.
type exception struct{ name, why string }

// known is the list of differences. What is only not implemented yet must not
// be in it.
var known = []exception{
	{"TestKillContainerDeletedByRunc", "the test removes the container with `runc delete --force`, which does not know other runtimes' containers and reports success"},
	{"TestContainerKillInitPidHost", "the test needs the host's PID namespace, which Katabox refuses; with `allow_host_namespaces = true` it passes"},
	{"TestContainerKillAll", "as above"},
}

// left are patterns of tests that are not run with any runtime unless
// requested.
var left = []exception{
	{"TestCheckpoint.*", "needs CRIU on the host with runc; with Katabox they pass in a run of their own"},
	{"TestIssue9103|TestIssue10589", "needs a fake runc that fails on command"},
	{"TestRestartMonitor", "counts the seconds until a container is back"},
	{"TestContainerExecLargeOutputWithTTY", "sends 700 MB through a terminal: takes minutes with runc, too"},
	{"TestDaemonCustomCgroup|TestMigration|TestMountManager|TestMountAtRuntime|TestClientTTRPC.*", "runs no container"},
	{"TestContentClient|TestSnapshotterClient|TestConvert|TestImage.*|TestTransfer.*|TestExport.*|TestImport|TestPullFetchAllContent|TestLeaseResources", "as above"},
}

// docs/compat.md has the same lists, between its two marks.
func TestCompatPageListsWhatIsKnown(t *testing.T) {
	if err := bed.layout.CheckCompatPage("client", knownTable()); err != nil {
		t.Error(err)
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
