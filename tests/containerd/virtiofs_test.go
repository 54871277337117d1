package containerd

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/tests/harness"
)

// volume is a directory of the host's, and what a container needs to see it at
// /volume.
func volume(t *testing.T) (dir string, spec oci.SpecOpts) {
	t.Helper()
	dir = t.TempDir()
	return dir, oci.WithMounts([]specs.Mount{{Type: "bind", Source: dir, Destination: "/volume", Options: []string{"rbind", "rw"}}})
}

// withVirtiofsd makes QEMU's virtiofsd serve the share, and skips the test if
// it is not installed.
func withVirtiofsd(t *testing.T) func(*harness.Options) {
	t.Helper()
	if !harness.HasVirtiofsd() {
		t.Skipf("%s is not installed (Debian 12: qemu-system-common)", harness.DefaultVirtiofsd)
	}
	return func(o *harness.Options) { o.Kata.Virtiofsd = harness.DefaultVirtiofsd }
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// show prints a file's size and another one's content: an attribute and data.
// Reading a file makes the guest fetch its attributes again, because of atime
// (fs/fuse/dir.c, fuse_invalidate_atime).
const show = "stat -c %s /volume/size; cat /volume/data"

// change gives both files this content.
func change(t *testing.T, dir, text string) {
	t.Helper()
	write(t, filepath.Join(dir, "size"), text)
	write(t, filepath.Join(dir, "data"), text)
}

// Each cache mode shows a change on the host when it should: immediately, when
// the file is reopened after a moment, or never.
func TestVirtioFSCache(t *testing.T) {
	needVM(t)
	const before, after = "3\nold", "5\nnewer"
	for mode, check := range map[string]func(context.Context, *testing.T, func() string){
		"never": func(_ context.Context, t *testing.T, see func() string) {
			if got := see(); got != after {
				t.Errorf("just after the change the guest sees %q, want %q", got, after)
			}
		},
		"metadata": awaitChange(after),
		"auto":     awaitChange(after),
		"always": func(_ context.Context, t *testing.T, see func() string) {
			if got := see(); got != before {
				t.Errorf("the guest sees %q, want %q: it may cache without end", got, before)
			}
		},
	} {
		t.Run(mode, func(t *testing.T) {
			configure := func(o *harness.Options) { o.Kata.Extra = fmt.Sprintf("virtio_fs_cache = %q\n", mode) }
			newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				dir, mount := volume(t)
				change(t, dir, "old")
				c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
					Name: "idle", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{mount},
				})
				see := func() string { return execOut(ctx, t, c, harness.ExecConfig{Args: script(show)}) }
				if got := see(); got != before {
					t.Fatalf("the guest sees %q, want %q", got, before)
				}
				change(t, dir, "newer")
				check(ctx, t, see)
				// What the guest writes is on the host immediately, in each
				// mode.
				works(ctx, t, c, "echo -n written > /volume/other")
				if got, err := os.ReadFile(filepath.Join(dir, "other")); string(got) != "written" || err != nil {
					t.Errorf("the host sees %q, %v", got, err)
				}
			})
		})
	}
}

// awaitChange checks that the change is seen within the cache's expiry, a
// second.
func awaitChange(want string) func(context.Context, *testing.T, func() string) {
	return func(ctx context.Context, t *testing.T, see func() string) {
		for got := see(); got != want; got = see() {
			select {
			case <-ctx.Done():
				t.Fatalf("the guest sees %q, want %q", got, want)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
}

// readRequest matches virtiofsd's log line for a read request (QEMU's
// tools/virtiofsd/passthrough_ll.c, lo_read).
var readRequest = regexp.MustCompile(`lo_read\(ino=\d+, size=(\d+),`)

// The queue has the length that is configured, and the daemon gets the
// additional arguments: its debug log shows the size of requests, which is
// bounded by the queue's descriptors, less four for the request itself
// (fs/fuse/virtio_fs.c, FUSE_HEADER_OVERHEAD).
func TestVirtioFSQueueSize(t *testing.T) {
	needVM(t)
	for size, largest := range map[int]int{8: 4 * 4096, 16: 12 * 4096, 1024: 256 * 4096} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			external := withVirtiofsd(t)
			configure := func(o *harness.Options) {
				external(o)
				o.Kata.Extra = fmt.Sprintf("virtio_fs_queue_size = %d\nvirtio_fs_extra_args = [\"-o\", \"log_level=debug\"]\n", size)
			}
			newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
				dir, mount := volume(t)
				write(t, filepath.Join(dir, "file"), strings.Repeat("x", 4<<20))
				c := add(ctx, t, newPod(ctx, t, d), harness.ContainerConfig{
					Name: "idle", Args: []string{"sleep", "100000"}, Spec: []oci.SpecOpts{mount},
				})
				mark := d.LogSize()
				works(ctx, t, c, "dd if=/volume/file of=/dev/null bs=4M iflag=direct")
				var most int
				for _, found := range readRequest.FindAllStringSubmatch(d.LogSince(mark, 1<<20), -1) {
					n, err := strconv.Atoi(found[1])
					if err != nil {
						t.Fatal(err)
					}
					most = max(most, n)
				}
				if most != largest {
					t.Errorf("the largest request is for %d bytes, want %d", most, largest)
				}
			})
		})
	}
}

// An argument that virtiofsd does not know fails the sandbox, with virtiofsd's
// message.
func TestVirtioFSBadArgument(t *testing.T) {
	needVM(t)
	external := withVirtiofsd(t)
	configure := func(o *harness.Options) {
		external(o)
		o.Kata.Extra = "virtio_fs_extra_args = [\"--no-such-thing\"]\n"
	}
	newestOwn(t, configure, func(ctx context.Context, t *testing.T, d *harness.Daemon) {
		err := create(ctx, d, harness.ContainerConfig{Name: "wrong", Args: []string{"true"}})
		wantError(t, err, "virtiofsd said: ", "--no-such-thing")
	})
}
