package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Programs may reserve more than there is, and the agent has a part where they may not. The
// kernel's command line goes first.
func TestOvercommit(t *testing.T) {
	for name, test := range map[string]struct {
		line          string
		total         uint64
		mode, reserve string
	}{
		"usual":           {"quiet", 2048, "1", "262144"},
		"large":           {"quiet", 65536, "1", "262144"},
		"small":           {"quiet", 256, "1", "32768"},
		"limited":         {"sysctl.vm.overcommit_memory=2 quiet", 2048, "as it was", "262144"},
		"all are chosen":  {"sysctl.vm.overcommit_memory=0 sysctl/vm/admin_reserve_kbytes=9", 2048, "as it was", "as it was"},
		"other than that": {"sysctl.vm.overcommit_ratio=90", 2048, "1", "262144"},
	} {
		f := newMachine(t)
		mode, reserve := filepath.Join(f.proc, "sys/vm/overcommit_memory"), filepath.Join(f.proc, "sys/vm/admin_reserve_kbytes")
		f.write(t, mode, "as it was")
		f.write(t, reserve, "as it was")
		f.write(t, f.proc+"/cmdline", test.line+"\n")
		must(t, setOvercommit(f.proc, test.total))
		for file, want := range map[string]string{mode: test.mode, reserve: test.reserve} {
			if text, err := os.ReadFile(file); err != nil || string(text) != want {
				t.Errorf("%s: %s: %q, %v; want %s", name, file, text, err, want)
			}
		}
	}
}

// One of the two that cannot be set does not keep the other.
func TestOvercommitFails(t *testing.T) {
	f := newMachine(t)
	reserve := filepath.Join(f.proc, "sys/vm/admin_reserve_kbytes")
	f.write(t, reserve, "8192")
	if err := setOvercommit(f.proc, 1024); err == nil || !strings.Contains(err.Error(), "vm/overcommit_memory to 1") {
		t.Errorf("without the file: %v", err)
	}
	if text, err := os.ReadFile(reserve); err != nil || string(text) != "131072" {
		t.Errorf("reserve %q, %v", text, err)
	}
}
