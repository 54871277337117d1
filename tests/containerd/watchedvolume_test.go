package containerd

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/tests/harness"
)

// watchScript starts a watch of a directory, whose events are in /tmp/events; watchedScript
// waits for its end and prints them.
const (
	watchScript   = "(/v/probe watch $DIR >/tmp/events 2>&1 </dev/null; echo over >>/tmp/events) >/dev/null 2>&1 & for i in $(seq 20); do grep -q ready /tmp/events && exit 0; sleep 1; done; cat /tmp/events; exit 1"
	watchedScript = "for i in $(seq 20); do grep -q over /tmp/events && break; sleep 1; done; cat /tmp/events"
)

// inotify tells a container what the other containers that have the same directory do in it, as watchers
// of configuration and of logs need. It does not tell what the host does, or a container that has only
// a directory within it (docs/volumes.md): these changes the container finds by looking.
func TestWatchedVolume(t *testing.T) {
	needVM(t)
	newest(t, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		dir := t.TempDir()
		part := filepath.Join(dir, "part")
		if err := os.Mkdir(part, 0o755); err != nil {
			t.Fatal(err)
		}
		buildProbe(t, dir)
		pod := newPod(ctx, t, d)
		watcher, writer := mounting(ctx, t, pod, "watcher", dir, "ro"), mounting(ctx, t, pod, "writer", dir, "rw")
		within := mounting(ctx, t, pod, "within", part, "rw")
		works(ctx, t, watcher, "DIR=/v/part; "+watchScript)
		write(t, filepath.Join(part, "host"), "from the host\n")
		works(ctx, t, within, "echo from within >/v/within")
		works(ctx, t, writer, "cd /v/part; echo one >new; echo two >>new; mv new old; chmod 600 old; rm old; : >end")
		want := "ready\ncreate new\nmodify new\nclose_write new\nmodify new\nclose_write new\nmoved_from new\nmoved_to old\nattrib old\ndelete old\nover\n"
		if got := works(ctx, t, watcher, watchedScript); got != want {
			t.Errorf("events of a directory that another container changes: %q, want %q", got, want)
		}
		if got := works(ctx, t, watcher, "sleep 1; cat /v/part/host /v/part/within"); got != "from the host\nfrom within\n" {
			t.Errorf("what the host and a container within have written: %q", got)
		}
	})
}
