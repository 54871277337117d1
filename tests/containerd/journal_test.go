package containerd

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/pkg/oci"

	"github.com/katabox/katabox/tests/harness"
)

const (
	journalWriters = 8
	// journalBlock is the size of a record of testdata/journal.c; block 0 has
	// the number of the last one.
	journalBlock = 4096
	// journalEnough is how much each writer has written before the kill.
	journalEnough = 20
)

// What a container has flushed is in its volume on the host, whether the
// machine or the shim is killed.
func TestFlushedIsKept(t *testing.T) {
	needVM(t)
	for _, kind := range []string{harness.KindVMM, harness.KindShim} {
		t.Run(kind, func(t *testing.T) {
			newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				dir, mount := volume(t)
				compileC(ctx, t, "journal", dir)
				pod := newPod(ctx, t, d)
				c := add(ctx, t, pod, harness.ContainerConfig{Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{mount}})
				p, err := c.Exec(ctx, harness.ExecConfig{Args: []string{"/volume/journal", "/volume", fmt.Sprint(journalWriters)}})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { removed(t, "exec", func(ctx context.Context) error { return p.Remove(d.Context(ctx)) }) })
				if err := p.Start(ctx); err != nil {
					t.Fatal(err)
				}
				for w := range journalWriters {
					if err := p.Out.Await(ctx, fmt.Sprintf("%d %d\n", w, journalEnough)); err != nil {
						t.Fatalf("%v: %s", err, p.Err)
					}
				}
				recorder := d.Record(ctx)
				defer recorder.Close()
				killOne(t, d, kind)
				if _, err := recorder.Await(ctx, c.Box.ID(), "exit"); err != nil {
					t.Error(err)
				}
				if kind == harness.KindShim { // containerd then cleans up
					if _, err := recorder.Await(ctx, pod.Sandbox.Box.ID(), "delete"); err != nil {
						t.Error(err)
					}
				}
				for writer, last := range flushed(t, p.Out.String()) {
					checkJournal(t, filepath.Join(dir, fmt.Sprint(writer)), last)
				}
			})
		})
	}
}

// compileC makes a static program of testdata/NAME.c in a directory.
func compileC(ctx context.Context, t *testing.T, name, dir string) {
	t.Helper()
	source, err := os.ReadFile("testdata/" + name + ".c")
	if err == nil {
		err = harness.CompileC(ctx, string(source), filepath.Join(dir, name))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// flushed returns each writer's last record that it reported as flushed.
func flushed(t *testing.T, said string) map[int]uint32 {
	t.Helper()
	last := make(map[int]uint32)
	for line := range strings.Lines(said) {
		var writer int
		var n uint32
		if _, err := fmt.Sscanf(line, "%d %d\n", &writer, &n); err != nil {
			if !strings.HasSuffix(line, "\n") {
				continue // cut off by the kill
			}
			t.Fatalf("the program said %q", line)
		}
		last[writer] = n
	}
	return last
}

// checkJournal checks a file's records up to the last one.
func checkJournal(t *testing.T, path string, last uint32) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) < int(last+1)*journalBlock {
		t.Fatalf("%s has %d bytes, and %d records were flushed", path, len(data), last)
	}
	if got := binary.LittleEndian.Uint32(data); got < last {
		t.Errorf("%s: the last record is said to be %d, and %d was flushed", path, got, last)
	}
	for n := uint32(1); n <= last; n++ {
		for at := int(n) * journalBlock; at < int(n+1)*journalBlock; at += 4 {
			if got := binary.LittleEndian.Uint32(data[at:]); got != n {
				t.Fatalf("%s: record %d has %d at byte %d", path, n, got, at)
			}
		}
	}
}
