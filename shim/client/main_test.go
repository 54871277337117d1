package client

import (
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/shim/shimtest"
	"github.com/katabox/katabox/virtcontainers/fakeguest"
)

func TestMain(m *testing.M) { shimtest.Main(m) }

// newProgram makes a container's bundle and returns the Program that calls the
// shim for it. When the test ends, nothing may be left on the host.
func newProgram(t *testing.T, id string) Program {
	t.Helper()
	self, dir := shimtest.Prepare(t)
	t.Setenv("TTRPC_ADDRESS", "/run/another-engine.sock") // must not be used
	bundle := filepath.Join(dir, "bundles", id)
	if err := fakeguest.WriteBundle(bundle, nil); err != nil {
		t.Fatal(err)
	}
	return Program{Path: self, ID: id, Bundle: bundle}
}
