package persist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// socketRoom is what a name leaves: /run/kata-containers/sandboxes/NAME/qemu.sock
// in 107 bytes.
const socketRoom = 107 - len("/run/kata-containers/sandboxes/") - len("/qemu.sock")

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 76) // containerd's longest
	seen := map[string]bool{}
	for _, owner := range []Owner{{"/run/a.sock", "n"}, {"/run/b.sock", "n"}, {"/run/a.sock", "m"}, {"/run/a.sockn", ""}, {"", "/run/a.sockn"}} {
		for _, id := range []string{"c1", long, long[1:] + "y", "c1-" + strings.Repeat("0", 12)} {
			name := owner.Name(id)
			if seen[name] {
				t.Errorf("%+v, %s: %s is another pod's", owner, id, name)
			}
			seen[name] = true
			if len(name) > socketRoom || !strings.HasPrefix(name, id[:min(len(id), shownID)]+"-") {
				t.Errorf("%+v, %s: %s", owner, id, name)
			}
			if name != owner.Name(id) {
				t.Errorf("%+v, %s has two names", owner, id)
			}
		}
	}
	if name := (Owner{}).Name(long); name != long {
		t.Errorf("without an owner: %s", name)
	}
}

func TestPodsOfOneID(t *testing.T) {
	root := t.TempDir()
	if found, err := Find(root+"/none", "s"); err != nil || len(found) != 0 {
		t.Errorf("none: %v, %v", found, err)
	}
	owners := []Owner{{}, {"/run/a.sock", "n"}, {"/run/a.sock", "m"}}
	stores := make([]*Store, len(owners))
	for i, owner := range owners {
		var err error
		if stores[i], err = Create(root, owner, "s"); err != nil {
			t.Fatal(err)
		}
	}
	// A record in another's directory is ignored.
	data, err := os.ReadFile(filepath.Join(root, "s", fileName))
	if err == nil {
		err = os.Mkdir(filepath.Join(root, "t"), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "t", fileName), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range owners {
		found, err := Find(root, "s")
		if err != nil || len(found) != len(owners)-i {
			t.Errorf("%d records, %v; want %d", len(found), err, len(owners)-i)
		}
		if err := stores[i].Remove(); err != nil {
			t.Fatal(err)
		}
	}
}
