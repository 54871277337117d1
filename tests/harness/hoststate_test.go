package harness

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSinceNamesWhatIsNew(t *testing.T) {
	before := HostState{"mount /a": {}, "link eth0": {}}
	now := HostState{"mount /a": {}, "mount /b": {}, "file /run/vc/x": {}}
	want := []string{"file /run/vc/x", "mount /b"}
	if diff := cmp.Diff(want, now.Since(before)); diff != "" {
		t.Errorf("new lines (-want +got):\n%s", diff)
	}
	if got := before.Since(now); !cmp.Equal(got, []string{"link eth0"}) {
		t.Errorf("the other way: %q", got)
	}
}

func TestConcerns(t *testing.T) {
	t.Setenv(EnvStrict, "")
	for line, want := range map[string]bool{
		"mount /tmp/kbt1/state/x (overlay overlay)": true,
		"file /run/kata-containers/kbaa-pod-1":      true,
		"file /run/kata-containers/other":           false,
		"link tap7":                                 false,
		"socket /run/containerd/s/another's":        false,
	} {
		if got := concerns(line, "kbaa", "/tmp/kbt1"); got != want {
			t.Errorf("%q: %t, want %t", line, got, want)
		}
	}
	t.Setenv(EnvStrict, "1")
	if !concerns("link tap7", "kbaa", "/tmp/kbt1") {
		t.Error("strict, and yet a link is not counted")
	}
}

func TestReadProcOfThisProcess(t *testing.T) {
	procs, err := tree("no such tag")
	if err != nil {
		t.Fatal(err)
	}
	init, ok := procs[1]
	if !ok || init.PPID != 0 || init.Comm == "" || init.tagged {
		t.Errorf("process 1 reads as %+v", init)
	}
}

func TestKind(t *testing.T) {
	for comm, want := range map[string]string{
		"containerd-shim": KindShim, "qemu-system-x86": KindVMM, "virtiofsd": KindVirtiofsd, "containerd": KindOther,
	} {
		if got := (Proc{Comm: comm}).Kind(); got != want {
			t.Errorf("%s is a %s, want %s", comm, got, want)
		}
	}
}
