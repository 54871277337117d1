package virtcontainers_test

import (
	"os"
	"testing"
	"time"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// Two owners' sandboxes with the same id live side by side, and ending or
// recovering one does not affect the other.
func TestOwnersOfOneID(t *testing.T) {
	host := newHost(t)
	boot := func(namespace string) (virtcontainers.Platform, *virtcontainers.Sandbox) {
		platform := host.Platform()
		platform.Owner = persist.Owner{Address: "/run/engine.sock", Namespace: namespace}
		s, err := virtcontainers.New(t.Context(), platform, options(newObserver()))
		if err != nil {
			t.Fatal(err)
		}
		return platform, s
	}
	first, a := boot("a")
	second, b := boot("b")
	_, none := boot("c")
	if err := none.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := virtcontainers.Recover(virtcontainers.Platform{RunDir: host.RunDir, Owner: persist.Owner{Namespace: "d"}}, sandboxID, sandboxID, time.Second); err != nil {
		t.Error(err)
	}
	for _, platform := range []virtcontainers.Platform{first, second} {
		if _, err := os.Stat(platform.PodDir(sandboxID)); err != nil {
			t.Errorf("the record of %+v: %v", platform.Owner, err)
		}
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	found, err := persist.Find(host.Platform().StateDir(), sandboxID)
	if err != nil || len(found) != 1 || found[0].Owner != second.Owner {
		t.Errorf("records %+v, %v; want that of %+v", found, err, second.Owner)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}
