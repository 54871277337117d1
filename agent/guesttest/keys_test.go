package guesttest

import (
	"os"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A pod whose containers have used up root's keys can have more containers and
// processes, by each way of starting them.
func TestGuestKeysAreUsedUp(t *testing.T) {
	m := guestOnly(t)
	m.pause(t, "keys-early")
	const limit = "/proc/sys/kernel/keys/root_maxkeys"
	before := fileIn(t, limit)
	if err := os.WriteFile(limit, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(limit, []byte(before), 0); err != nil {
			t.Error(err)
		}
	})
	ways := map[string]func(*specs.Process){"own": func(*specs.Process) {}, "stage": byStage}
	for name, by := range ways {
		id := "keys-" + name
		spec := shell("trap 'exit 7' TERM; while :; do sleep 1000 & wait $!; done")
		by(spec.Process)
		m.start(t, id, spec)
	}
	for _, id := range []string{"keys-early", "keys-own", "keys-stage"} {
		for name, by := range ways {
			p := process("echo runs")
			by(p)
			if got := m.startOrError(t, id, name, p); got != "0runs\n" {
				t.Errorf("%s, exec by %s: %q", id, name, got)
			}
		}
	}
}
