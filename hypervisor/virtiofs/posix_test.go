package virtiofs

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"github.com/katabox/katabox/hypervisor/virtiofs/passthrough"
)

func ptr(p []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(p)) }

// servings are the configurations with which sequence tests are run. With few
// descriptors most files are found again by their names.
var servings = map[string]serving{
	"auto":            {policy: passthrough.Auto},
	"rootfs":          {policy: passthrough.Rootfs},
	"exclusive":       {policy: passthrough.Exclusive},
	"few descriptors": {policy: passthrough.Auto, descriptors: 32},
}

// TestPosix runs go-fuse's suite on a mounted share.
func TestPosix(t *testing.T) {
	for name, as := range servings {
		t.Run(name, func(t *testing.T) {
			inMount(t, "TestPosixInside", mountDir(t, t.TempDir(), as))
		})
	}
}

// notHere are cases that fail in a plain directory too.
var notHere = map[string]string{
	"FdLeak":              "counts the descriptors of a server in its own process",
	"FcntlFlockLocksFile": "wants a POSIX lock of the same process to conflict, as go-fuse's own server makes it",
}

// TestPosixInside is what TestPosix runs.
func TestPosixInside(t *testing.T) {
	dir := inside(t)
	for name, test := range posixtest.All {
		if notHere[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			sub := filepath.Join(dir, name)
			if err := os.Mkdir(sub, 0o755); err != nil {
				t.Fatal(err)
			}
			test(t, sub)
		})
	}
}
