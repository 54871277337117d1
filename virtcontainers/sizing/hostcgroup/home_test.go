package hostcgroup

import "testing"

// A process that was moved goes back to where it was, and doing so again is no
// error.
func TestReturn(t *testing.T) {
	eachVersion(t, func(t *testing.T, root string) {
		path := makeExisting(t, root, func(hierarchy) bool { return true })
		home, err := Self()
		if err != nil {
			t.Fatal(err)
		}
		enter(t, root, path)
		if away, err := Self(); err != nil || string(away) == string(home) {
			t.Fatalf("this process is not in the cgroup: %v", err)
		}
		for range 2 {
			if err := Return(root, home); err != nil {
				t.Error(err)
			}
			if now, err := Self(); err != nil || string(now) != string(home) {
				t.Errorf("this process is in\n%swant\n%s%v", now, home, err)
			}
		}
	})
	if err := Return("/nonexistent", nil); err == nil {
		t.Error("it returns where there are no cgroups")
	}
}
