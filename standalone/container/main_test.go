package container

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/katabox/katabox/shim/shimtest"
	"github.com/katabox/katabox/standalone/store"
)

func TestMain(m *testing.M) { shimtest.Main(m) }

// newManager returns a manager whose shims have guests in memory, and an image.
func newManager(t *testing.T) (*Manager, store.Image) {
	t.Helper()
	program, dir := shimtest.Prepare(t)
	s, err := store.Open(filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	image := t.TempDir()
	if err := os.Mkdir(filepath.Join(image, "tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	return &Manager{Store: s, Shim: program}, store.Image{Name: "image", Dir: image}
}

// run creates and starts a container without a network.
func run(t *testing.T, m *Manager, img store.Image, o Options, stdio *Stdio) *Container {
	t.Helper()
	o.Network, o.Spec.Args = NoNetwork, []string{"sh"}
	c, err := m.Create(t.Context(), img, o, stdio)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// patience is more than anything takes.
const patience = 30 * time.Second
