package guesttest

import (
	"strings"
	"testing"

	"github.com/katabox/katabox/agent/api"
)

// A container sees the processes of another one whose PID namespace it joins.
func TestGuestPIDNamespaceOfAnother(t *testing.T) {
	m := guestOnly(t)
	m.pause(t, "target")
	spec := shell("cat /proc/1/cmdline")
	for _, how := range []string{"spawned", "staged"} {
		if how == "staged" {
			byStage(spec.Process)
		}
		if err := m.create(t, how, withSpec(t, spec, &api.ContainerConfig{PidNamespaceOf: "target"})); err != nil {
			t.Fatal(err)
		}
		if r := m.finish(t, how, ""); !strings.Contains(r.out, "trap 'exit 7' TERM") {
			t.Errorf("%s: process 1 is %+v, want the target's", how, r)
		}
	}
}
