package guesttest

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A container may have more open files than Linux allows by itself, 1,048,576, by each way
// of starting it.
func TestGuestManyOpenFiles(t *testing.T) {
	m := guestOnly(t)
	for id, by := range map[string]func(*specs.Process){"files-own": func(*specs.Process) {}, "files-stage": byStage} {
		spec := shell("ulimit -n; ulimit -Hn")
		spec.Process.Rlimits = []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Soft: 2000000, Hard: 1073741816}}
		by(spec.Process)
		if r := m.run(t, id, spec); r.out != "2000000\n1073741816\n" {
			t.Errorf("%s: %+v", id, r)
		}
	}
}
