package engine

import "testing"

func TestFor(t *testing.T) {
	for _, namespace := range []string{"k8s.io", "moby", "default", "", "ISULA"} {
		if p := For(namespace, "/run/containerd/containerd.sock"); p != (Policy{}) {
			t.Errorf("%q is not containerd's: %+v", namespace, p)
		}
	}
	if p, want := For("default", ""), (Policy{SweepOnStart: true, KeepExecs: execKept, EndedTakesSignals: true, OOMFile: true}); p != want {
		t.Errorf("CRI-O: %+v, want %+v", p, want)
	}
	if p := For(ISulad, ""); !p.SweepOnStart || p.KeepExecs == 0 || !p.ReadersStay || p.PipesBreak || p.WaiterOwnsProcess {
		t.Errorf("iSulad: %+v", p)
	}
	if p := For(CommandLine, "/run/bundles"); p.SweepOnStart || p.KeepExecs != 0 || !p.ReadersStay || !p.PipesBreak || !p.WaiterOwnsProcess || !p.PatientDelete || !p.OOMFile {
		t.Errorf("the command line: %+v", p)
	}
}
