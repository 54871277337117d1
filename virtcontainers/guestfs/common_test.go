package guestfs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/config"
)

// sharingPod returns a pod with a share.
func sharingPod(t *testing.T) *Pod {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	c := new(config.Config)
	p, err := Open(t.Context(), Options{ID: "pod", Scratch: t.TempDir(), Config: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	p.Connect(files{map[string]bool{}}, func() bool { return false })
	return p
}

// mounting is a request of a container with these sources, by their destinations.
func mounting(t *testing.T, id string, sources map[string]string) Request {
	t.Helper()
	b := &bundle.Bundle{Dir: t.TempDir(), Spec: &specs.Spec{Root: &specs.Root{}, Process: &specs.Process{}, Linux: &specs.Linux{}}}
	for _, destination := range slices.Sorted(maps.Keys(sources)) {
		b.Spec.Mounts = append(b.Spec.Mounts, specs.Mount{Destination: destination, Type: "bind", Source: sources[destination], Options: []string{"rbind", "rw"}})
	}
	return Request{ID: id, Bundle: b}
}

// placesOf makes a container's files and returns where its mounts are in the guest.
func placesOf(t *testing.T, c *Container) map[string]string {
	t.Helper()
	if err := do(t, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
	places, err := c.SavedMounts()
	if err != nil {
		t.Fatal(err)
	}
	return places
}

// Containers have the directories of the host in common, and their files for
// themselves. Release gives a directory up.
func TestDirectoriesInCommon(t *testing.T) {
	p := sharingPod(t)
	sources := map[string]string{"/dir": t.TempDir(), "/file": file(t, "file")}
	first := p.Container(mounting(t, "c1", sources))
	one, other := placesOf(t, first), placesOf(t, p.Container(mounting(t, "c2", sources)))
	if one["/dir"] != other["/dir"] || filepath.Dir(one["/dir"]) != api.GuestPodVolumesDir {
		t.Errorf("the directory is at %s and at %s", one["/dir"], other["/dir"])
	}
	if one["/file"] == other["/file"] || !strings.HasPrefix(one["/file"], api.GuestSharedDir+"/c1/") {
		t.Errorf("the file is at %s and at %s", one["/file"], other["/file"])
	}
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if third := placesOf(t, p.Container(mounting(t, "c3", sources))); third["/dir"] != other["/dir"] {
		t.Errorf("after the first one's end at %s, want %s", third["/dir"], other["/dir"])
	}
}

// What continues from a saved container has its mounts where the guest knows them, also
// those of a container that was saved when each was the container's own.
func TestMountsOfSavedContainer(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for name, saved := range map[string]map[string]string{
		"in common": {"/a": api.GuestPodVolumesDir + "/9", "/b": api.GuestPodVolumesDir + "/3"},
		"its own":   {"/a": api.GuestSharedDir + "/saved/mounts/4", "/b": api.GuestSharedDir + "/saved/mounts/0"},
		"both":      {"/a": api.GuestPodVolumesDir + "/1", "/b": api.GuestSharedDir + "/saved/mounts/1"},
	} {
		t.Run(name, func(t *testing.T) {
			req := mounting(t, "c1", map[string]string{"/a": dir, "/b": other})
			saved["/"] = api.GuestSharedDir + "/saved/rootfs"
			req.ShareID, req.Saved = "saved", saved
			c := sharingPod(t).Container(req)
			if got := placesOf(t, c); !maps.Equal(got, saved) {
				t.Errorf("mounts are at %v, want %v", got, saved)
			}
			if err := c.CheckSaved(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("a destination twice", func(t *testing.T) {
		req := mounting(t, "c1", map[string]string{"/a": dir})
		req.Bundle.Spec.Mounts = append(req.Bundle.Spec.Mounts, req.Bundle.Spec.Mounts...)
		req.Saved = map[string]string{"/": api.GuestSharedDir + "/c1/rootfs", "/a": api.GuestPodVolumesDir + "/1"}
		if got := placesOf(t, sharingPod(t).Container(req)); !maps.Equal(got, req.Saved) {
			t.Errorf("mounts are at %v, want %v", got, req.Saved)
		}
	})
	t.Run("a file that is the guest's now", func(t *testing.T) {
		link := filepath.Join(t.TempDir(), "mtab")
		if err := os.Symlink("/proc/self/mounts", link); err != nil {
			t.Fatal(err)
		}
		req := mounting(t, "c1", map[string]string{"/a": dir, "/m": link})
		req.Saved = map[string]string{"/": api.GuestSharedDir + "/c1/rootfs", "/a": api.GuestPodVolumesDir + "/1", "/m": api.GuestSharedDir + "/c1/mounts/1"}
		c := sharingPod(t).Container(req)
		placesOf(t, c)
		const want = "its mount at /m is the guest's /proc/self/mounts, the saved container has the host's file there, as earlier versions did: "
		if err := c.CheckSaved(); !errdefs.IsFailedPrecondition(err) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})
	t.Run("two in one place", func(t *testing.T) {
		req := mounting(t, "c1", map[string]string{"/a": dir, "/b": other})
		req.Saved = map[string]string{"/": "", "/a": api.GuestPodVolumesDir + "/1", "/b": api.GuestPodVolumesDir + "/1"}
		if err := do(t, sharingPod(t).Container(req)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("got %v", err)
		}
	})
}

// The guest's error about a mount has the path in the guest.
func TestExplainMount(t *testing.T) {
	dir, name := t.TempDir(), file(t, "file")
	c := sharingPod(t).Container(mounting(t, "c1", map[string]string{"/dir": dir, "/file": name}))
	places := placesOf(t, c)
	for destination, source := range map[string]string{"/dir": dir, "/file": name} {
		refused := fmt.Errorf("error mounting %q to rootfs at %q: not a directory", places[destination], destination)
		if err := c.Explain(refused); !errors.Is(err, refused) || !strings.HasPrefix(err.Error(), "volume "+source+": ") {
			t.Errorf("explained as %q, want %s in it", err, source)
		}
	}
	for _, text := range []string{"no such program", `error mounting "` + places["/dir"] + `0" to rootfs`, `error mounting ""`} {
		if err := c.Explain(errors.New(text)); err.Error() != text {
			t.Errorf("%q is explained as %q", text, err)
		}
	}
}
