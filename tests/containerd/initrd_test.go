package containerd

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/u-root/u-root/pkg/cpio"
)

// initrdWith makes an initramfs from the guest image's and a test's files, and
// returns its path. A script finds a shell at /test/busybox.
//
// The kernel unpacks archives one after the other
// (Documentation/driver-api/early-userspace/buffer-format.rst), each at a
// multiple of four bytes.
func initrdWith(t *testing.T, files ...cpio.Record) string {
	t.Helper()
	box, err := exec.LookPath("busybox")
	if err != nil {
		t.Skipf("no busybox: run make deps: %v", err)
	}
	busybox, err := os.ReadFile(box)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w := cpio.Newc.Writer(&buf)
	files = append(files, cpio.StaticFile("test/busybox", string(busybox), 0o755))
	if err := cpio.WriteRecordsAndDirs(w, files); err != nil {
		t.Fatal(err)
	}
	if err := cpio.WriteTrailer(w); err != nil {
		t.Fatal(err)
	}
	buf.Write(make([]byte, -buf.Len()&3))
	image, err := os.ReadFile(bed.layout.Initrd())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "initrd.img")
	if err := os.WriteFile(path, append(buf.Bytes(), image...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
