package isulad

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/katabox/katabox/tests/harness"
	"github.com/katabox/katabox/tests/image"
	"github.com/katabox/katabox/tests/isulad/engine"
)

// bed is what all tests share.
var bed struct {
	layout harness.Layout
	opts   engine.Options
	engine *engine.Engine
	// pod is the shared pod's sandbox container, made at first use.
	pod *engine.Container
}

// The names of the images.
const (
	busybox = "busybox"
	pause   = "pause"
)

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: a virtual machine's mounts need root")
		os.Exit(0)
	}
	code := 1
	err := prepare()
	if err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, tearDown()); err == nil && code == 0 {
		err = goleak.Find()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "FAIL: outside of the tests:", err)
		code = 1
	}
	os.Exit(code)
}

func prepare() (err error) {
	if bed.layout, err = harness.FindLayout(); err != nil {
		return err
	}
	for path, command := range map[string]string{
		bed.layout.Shim(): "make build", bed.layout.Kernel(): "make guest-image", bed.layout.Initrd(): "make guest-image",
		harness.DefaultQEMU: "make deps",
	} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run %q", err, command)
		}
	}
	dir, err := os.MkdirTemp("/tmp", "kbis")
	if err != nil {
		return err
	}
	bed.opts = engine.Options{
		Dir: dir, ShimDir: bed.layout.Bin(), ConfigFile: filepath.Join(dir, "configuration.toml"),
		Images: map[string]string{busybox: filepath.Join(dir, busybox), pause: filepath.Join(dir, pause)},
	}
	if err := writeConfig(bed.opts.ConfigFile); err != nil {
		return err
	}
	if err := unpackImages(); err != nil {
		return err
	}
	bed.engine, err = engine.New(bed.opts)
	return err
}

func writeConfig(path string) error {
	text := fmt.Sprintf("[hypervisor.qemu]\npath = %q\nkernel = %q\ninitrd = %q\n", harness.DefaultQEMU, bed.layout.Kernel(), bed.layout.Initrd())
	text += fmt.Sprintf("virtio_fs_daemon = %q\nshared_fs = \"virtio-fs\"\n", harness.ExternalVirtiofsd())
	text += "default_vcpus = 1\ndefault_memory = 256\n" + harness.Patience
	return os.WriteFile(path, []byte(text), 0o600)
}

func unpackImages() error {
	archive, err := image.Build(context.Background(), filepath.Join(bed.layout.Build(), "images"))
	if err != nil {
		return err
	}
	for name, ref := range map[string]string{busybox: image.Busybox, pause: image.Pause} {
		dir := bed.opts.Images[name]
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		if err := engine.UnpackImage(archive, ref, dir); err != nil {
			return err
		}
	}
	return nil
}

// tearDown removes the shared pod and the engine, and checks that nothing of
// them is left.
func tearDown() error {
	if bed.engine == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	var err error
	if bed.pod != nil {
		err = errors.Join(bed.pod.Remove(ctx, true), awaitClean(ctx, bed.pod))
		force(bed.pod)
	}
	bed.engine.Close()
	err = errors.Join(err, bed.engine.RemoveStorage())
	if left := mountsBelow(bed.opts.Dir); len(left) > 0 {
		return errors.Join(err, fmt.Errorf("still mounted: %v", left)) // a removal could delete the host's files
	}
	return errors.Join(err, os.RemoveAll(bed.opts.Dir))
}
