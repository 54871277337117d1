package virtcontainers_test

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/virtcontainers/checkpoint"
)

// bound returns bind mounts of new directories.
func bound(t *testing.T, destinations ...string) []specs.Mount {
	t.Helper()
	var mounts []specs.Mount
	for _, d := range destinations {
		mounts = append(mounts, specs.Mount{Destination: d, Type: "bind", Source: t.TempDir(), Options: []string{"rbind"}})
	}
	return mounts
}

// The mounts of a restored container may be listed in another order: each is where
// the guest has found the saved container's of the same destination. A destination with two
// mounts is found in the same order alone.
func TestRestoreReorderedMounts(t *testing.T) {
	for name, tc := range map[string]struct {
		saved, restored []string
		refused         string
	}{
		"another order":   {[]string{"/a", "/b", "/c"}, []string{"/c", "/a", "/b"}, ""},
		"two at a place":  {[]string{"/a", "/b", "/a"}, []string{"/a", "/b", "/a"}, ""},
		"two, reordered":  {[]string{"/a", "/b", "/a"}, []string{"/b", "/a", "/a"}, "want a place of its own"},
		"another, before": {[]string{"/a", "/b"}, []string{"/c", "/a", "/b"}, "a mount at /c, the saved container has none"},
		"one is missing":  {[]string{"/a", "/b"}, []string{"/b"}, "a mount at /a, this one has none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSaverWith(t, bound(t, tc.saved...)...)
			s.says("before ")
			s.saveAndEnd()
			r := s.restoration("next")
			r.container.Bundle.Spec.Mounts = append(r.container.Bundle.Spec.Mounts, bound(t, tc.restored...)...)
			if tc.refused != "" {
				_, err := s.restore(r)
				wantError(t, "restore", err, isError, tc.refused)
				checkNothingLeft(t, s.host)
				return
			}
			next := s.restored(r)
			next.says("again ")
			next.saveAndEnd()
			if diff := cmp.Diff(s.record().Container.Mounts, next.record().Container.Mounts); diff != "" {
				t.Errorf("the mounts are elsewhere: %s", diff)
			}
		})
	}
}

// Where a checkpoint says that the mounts are is not trusted.
func TestRestoreForgedMounts(t *testing.T) {
	for _, at := range []string{"/run/kata-containers/shared/containers/pod/mounts/..", "/", "x/-1", "x/07", "rootfs", "/b's"} {
		t.Run(strings.ReplaceAll(at, "/", "_"), func(t *testing.T) {
			s := newSaverWith(t, bound(t, "/a", "/b")...)
			s.saveAndEnd()
			r := s.restoration("next")
			r.container.Bundle.Spec.Mounts = append(r.container.Bundle.Spec.Mounts, bound(t, "/a", "/b")...)
			r.dir = t.TempDir()
			rewrite(t, s, r.dir, func(rec *checkpoint.Record) {
				if at == "/b's" {
					at = rec.Container.Mounts["/b"]
				}
				rec.Container.Mounts["/a"] = at
			})
			_, err := s.restore(r)
			wantError(t, "restore", err, errdefs.IsInvalidArgument, "the saved container's mount at /a is at "+at)
			checkNothingLeft(t, s.host)
		})
	}
}

// A restored container's directories in the guest and in the share have the id of the
// first one of all that continued from each other. Another container must not get them:
// its removal would take them from the one that runs.
func TestRestoredKeepsItsFirstID(t *testing.T) {
	s := newSaver(t)
	s.says("before ")
	s.saveAndEnd()
	next := s.restored(s.restoration("next"))
	_, err := next.Create(t.Context(), next.options(sandboxID, nil), ignore)
	wantError(t, "create", err, errdefs.IsAlreadyExists, "container next continues from one with that id")
	next.checkGoesOn()
}

// A checkpoint gives its machine no more memory than this host and its configuration
// allow, whatever it says of itself.
func TestRestoreTooMuchMemory(t *testing.T) {
	s := newSaver(t)
	s.saveAndEnd()
	for what, tc := range map[string]struct {
		modules []uint64
		fits    bool
	}{
		"little":   {[]uint64{256}, true},
		"much":     {[]uint64{256, 1 << 20}, false},
		"overflow": {[]uint64{1 << 63, 1 << 63}, false},
	} {
		t.Run(what, func(t *testing.T) {
			r := s.restoration("next")
			r.dir = t.TempDir()
			h := &r.config.Hypervisor
			h.MemorySlots, h.MaxMemoryMiB = 10, 1024
			rewrite(t, s, r.dir, func(rec *checkpoint.Record) {
				spec := s.vm.Spec
				spec.MemorySlots, spec.MaxMemoryMiB = 10, 2<<20
				description, err := s.host.Monitor.Describe(spec)
				if err != nil {
					t.Fatal(err)
				}
				rec.Machine.Description, rec.Machine.MaxMemoryMiB, rec.Machine.Layout.ModulesMiB = description, spec.MaxMemoryMiB, tc.modules
			})
			next, err := s.restore(r)
			if !tc.fits {
				wantError(t, "restore", err, errdefs.IsFailedPrecondition, "this host and its configuration allow 1024 MiB")
				checkNothingLeft(t, s.host)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			next.start(initOf(t, next.c))
			next.checkGoesOn()
		})
	}
}
