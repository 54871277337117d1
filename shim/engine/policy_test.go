package engine

import "testing"

func TestFor(t *testing.T) {
	for _, namespace := range []string{"k8s.io", "moby", "default", "", "ISULA"} {
		if p := For(namespace); p != (Policy{}) {
			t.Errorf("%q is not containerd's: %+v", namespace, p)
		}
	}
	if p := For(ISulad); !p.SweepOnStart || p.KeepExecs == 0 || !p.ReadersStay || p.PipesBreak || p.WaiterOwnsProcess {
		t.Errorf("iSulad: %+v", p)
	}
	if p := For(CommandLine); p.SweepOnStart || p.KeepExecs != 0 || !p.ReadersStay || !p.PipesBreak || !p.WaiterOwnsProcess {
		t.Errorf("the command line: %+v", p)
	}
}
