package sizing

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers/config"
)

func TestHugePageOf(t *testing.T) {
	meminfo := filepath.Join(t.TempDir(), "meminfo")
	wanted := config.Hypervisor{Memory: config.Memory{HugePages: true}}
	for text, want := range map[string]uint64{
		"MemTotal: 1 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB\n": 2,
		"Hugepagesize:    1048576 kB\n":                                           1024,
		"Hugepagesize:      64 kB\n":                                              0,
		"MemTotal: 1 kB\n":                                                        0,
	} {
		if err := os.WriteFile(meminfo, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := hugePageOf(wanted, meminfo)
		if got != want || (want == 0) != errdefs.IsFailedPrecondition(err) {
			t.Errorf("%q: %d, %v", text, got, err)
		}
		if got, err := hugePageOf(config.Hypervisor{}, meminfo); got != 0 || err != nil {
			t.Errorf("none wanted: %d, %v", got, err)
		}
	}
	if _, err := hugePageOf(wanted, "/nonexistent"); err == nil {
		t.Error("no file is no error")
	}
}

func TestWholePages(t *testing.T) {
	for _, test := range []struct{ mib, page, want uint64 }{{257, 0, 257}, {256, 2, 256}, {257, 2, 258}, {257, 1024, 1024}} {
		if got := wholePages(test.mib, test.page); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}
