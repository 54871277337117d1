package persist

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRecordSurvives(t *testing.T) {
	root := t.TempDir()
	s, err := Create(root, Owner{}, "s1")
	if err != nil {
		t.Fatal(err)
	}
	want := &Record{Version: Version, SandboxID: "s1", VM: Process{PID: 7, Start: 9}, NetNS: "/netns"}
	err = s.Update(func(r *Record) { r.VM, r.NetNS = want.VM, want.NetNS })
	if err != nil {
		t.Fatal(err)
	}
	got, err := Load(root, "s1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(root, "s1"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removed record: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, content := range []string{"", "{", `{"version":99}`} {
		root := t.TempDir()
		if err := os.MkdirAll(filepath.Join(root, "s"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, "s", fileName), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(root, "s"); err == nil {
			t.Errorf("%q was read", content)
		}
	}
}

func TestKillOnlyTheSameProcess(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := Identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	other := Process{PID: p.PID, Start: p.Start + 1}
	if err := other.Kill(time.Second); err != nil || !p.Alive() {
		t.Fatalf("a process of another start time was killed: %v", err)
	}
	if err := p.Kill(5 * time.Second); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the process was not killed")
	}
	if p.Alive() {
		t.Error("the process is alive after its end")
	}
	if err := p.Kill(time.Second); err != nil {
		t.Errorf("killing it again: %v", err)
	}
}
