package guesttest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// The root file system and the volumes of a container whose start is compared.
const (
	initDir     = "/run/inittest"
	initRoot    = initDir + "/root"
	initVolumes = initDir + "/volumes"
)

// initSpec returns the spec of a container that runs a script on freshRoot.
func initSpec(script string) *specs.Spec {
	spec := shell(script)
	spec.Root.Path = initRoot
	return spec
}

// freshRoot makes a root file system and volumes as no container has changed
// them; the second start must not find what the first one made. undo removes them.
func freshRoot(t *testing.T) (undo func()) {
	t.Helper()
	makeMount(t, initDir, "tmpfs", "mode=755", unix.MS_PRIVATE)
	for _, dir := range []string{"upper", "work"} {
		makeDir(t, initDir+"/"+dir)
	}
	makeMount(t, initRoot, "overlay", "lowerdir=/rootfs,upperdir="+initDir+"/upper,workdir="+initDir+"/work", unix.MS_PRIVATE)
	makeMount(t, initVolumes, "tmpfs", "mode=755", unix.MS_SHARED)
	makeDir(t, initVolumes+"/dir/nested")
	makeDir(t, initVolumes+"/layer")
	makeMount(t, initVolumes+"/dir/inner", "tmpfs", "", unix.MS_SHARED)
	for name, mode := range map[string]os.FileMode{"volumes/file": 0o640, "root/tmp/data": 0o644, "root/tmp/script": 0o755, "root/tmp/elf": 0o755} {
		text := map[string]string{"script": "#!/no/such\n", "elf": "\x7fELF"}[filepath.Base(name)]
		if err := os.WriteFile(initDir+"/"+name, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	makeDir(t, initRoot+"/tmp/linked")
	if err := os.Symlink("/tmp/linked", initRoot+"/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(initRoot+"/tmp/closed", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", "/etc", "/tmp/linked"} { // Another user namespace's root makes mount points there.
		if err := os.Chmod(initRoot+dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		t.Helper()
		for _, dir := range []string{initVolumes + "/dir/inner", initVolumes, initRoot, initDir} {
			if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
				t.Errorf("unmount %s: %v", dir, err)
			}
		}
	}
}

func makeDir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
}

// makeMount mounts a file system on a new directory, with a propagation.
func makeMount(t *testing.T, dir, kind, data string, propagation uintptr) {
	t.Helper()
	makeDir(t, dir)
	if err := unix.Mount(kind, dir, kind, 0, data); err != nil {
		t.Fatalf("mount %s on %s: %v", kind, dir, err)
	}
	if err := unix.Mount("", dir, "", propagation, ""); err != nil {
		t.Fatalf("set propagation of %s: %v", dir, err)
	}
}
