package storage

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// The guest may make in a volume what one of the containers that have it may, until the
// volume ends; in a root file system anything, and nothing elsewhere.
func TestSpecials(t *testing.T) {
	s := newOwnShare(t)
	var none passthrough.Special
	want := func(when, where string, want passthrough.Special) {
		t.Helper()
		if got := s.specials.of(where); got != want {
			t.Errorf("%s, %q: %+v, want %+v", when, where, got, want)
		}
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o755); err != nil {
		t.Fatal(err)
	}
	volume := addOne(t, s, "c1", guestspec.Bind{Source: dir})
	want("one container without rights", volume, none)
	want("one container without rights", "", none)

	if again := addOne(t, s, "c2", guestspec.Bind{Source: dir, Devices: true}); again != volume {
		t.Fatalf("%q and %q", volume, again)
	}
	want("a second one that may make devices", volume, passthrough.Special{Devices: true})
	addOne(t, s, "c3", guestspec.Bind{Source: dir, FileCapabilities: true})
	want("a third one", volume, passthrough.Special{Devices: true, Capabilities: true})
	want("a third one", volume+"/below/mount", passthrough.Special{Devices: true, Capabilities: true})
	want("a third one", volume+"0", none)

	readOnly := guestspec.Bind{Source: t.TempDir(), ReadOnly: true, Devices: true}
	volume2 := addOne(t, s, "c3", readOnly)
	want("read-only", volume2, none)
	want("below a read-only one", volume2+"/below", passthrough.Special{Devices: true})
	readOnly.Source, readOnly.RecursiveReadOnly = t.TempDir(), true
	want("below one that is read-only with all below it", addOne(t, s, "c3", readOnly)+"/below", none)

	own := guestspec.Bind{Source: dir, Index: 7, FileCapabilities: true}
	if _, err := s.AddContainer(t.Context(), "c1", tree(t), []guestspec.Bind{own}); err != nil {
		t.Fatal(err)
	}
	want("its own mount", "c1/mounts/7", passthrough.Special{Capabilities: true})
	want("its root file system", "c1/rootfs", passthrough.Special{Devices: true, Capabilities: true})
	want("what the host has mounted there", "c1/rootfs/mnt", none)
	want("what is bound for the pod", podBindsName+"/rootfs", none)

	remove(t, s, "c1", "c2")
	want("without the container", "c1/mounts/7", none)
	want("with one left", volume, passthrough.Special{Devices: true, Capabilities: true})
	remove(t, s, "c3")
	want("without containers", volume, none)
}
