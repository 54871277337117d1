package harness

import (
	"strings"
	"testing"
)

// A plugin that a suite wants is not turned off, and the others are.
func TestWantedPluginsRun(t *testing.T) {
	const cri, opt = `"io.containerd.grpc.v1.cri"`, `"io.containerd.internal.v1.opt"`
	for _, wanted := range [][]string{nil, {"io.containerd.grpc.v1.cri"}} {
		d := &Daemon{Dir: "/none", release: Release{ConfigVersion: 3}, options: Options{Plugins: wanted}}
		text := d.containerdConfig()
		if off := strings.Contains(text, cri); off != (wanted == nil) {
			t.Errorf("with %v wanted, CRI is turned off: %v", wanted, off)
		}
		if !strings.Contains(text, opt) {
			t.Errorf("with %v wanted, opt is not turned off", wanted)
		}
	}
}
