package guest

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAnswerKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sbin", "modprobe")
	if err := answerKernel(path); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(path); err != nil || target != "/init" {
		t.Errorf("modprobe leads to %q, %v", target, err)
	}
}

func TestAnImageKeepsItsOwnModprobe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "modprobe")
	if err := os.WriteFile(path, []byte("own"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := answerKernel(path); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != "own" {
		t.Errorf("modprobe is %q, %v", data, err)
	}
	if err := answerKernel(filepath.Join(path, "modprobe")); err == nil {
		t.Error("a link was made below a file")
	}
}
