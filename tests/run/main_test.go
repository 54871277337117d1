package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/katabox/katabox/tests/harness"
)

// bed is what all tests share.
var bed struct {
	dir    string // of this run alone
	store  string
	config string
	tag    string // in the environment of all processes, and a prefix of names
	images images
	layout harness.Layout
}

// envTag is the variable that marks the processes of this suite.
const envTag = "KATABOX_RUN_TEST"

func TestMain(m *testing.M) {
	if os.Geteuid() != 0 {
		fmt.Println("SKIP: a virtual machine's mounts need root")
		os.Exit(0)
	}
	code := 1
	err := prepare()
	if err == nil {
		code = m.Run()
		err = errors.Join(bed.images.close(), os.RemoveAll(bed.dir), goleak.Find())
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
		program(): "make build", bed.layout.Shim(): "make build",
		bed.layout.Kernel(): "make guest-image", bed.layout.Initrd(): "make guest-image", harness.DefaultQEMU: "make deps",
	} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run %q", err, command)
		}
	}
	if bed.dir, err = os.MkdirTemp("/tmp", "kbrun"); err != nil {
		return err
	}
	bed.tag = filepath.Base(bed.dir)
	bed.store, bed.config = filepath.Join(bed.dir, "store"), filepath.Join(bed.dir, "configuration.toml")
	if err := (harness.KataConfig{}).Write(bed.layout, bed.config); err != nil {
		return err
	}
	return bed.images.make(context.Background())
}

func program() string { return filepath.Join(bed.layout.Bin(), "kata-runtime") }
