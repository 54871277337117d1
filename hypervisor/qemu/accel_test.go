package qemu

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/katabox/katabox/hypervisor"
)

func TestDetectAccel(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kvm, none := file("kvm", ""), filepath.Join(dir, "none")
	intel := file("intel", "processor\t: 0\nflags\t\t: fpu vmx sse\n")
	amd := file("amd", "processor\t: 0\nflags\t\t: fpu svm sse\nprocessor\t: 1\nflags\t\t: fpu svm\n")
	plain := file("plain", "model name\t: svm vmx\nflags\t\t: fpu svm_lock avmx\nvmx flags\t: vnmi\n")
	for _, tt := range []struct {
		name   string
		host   Host
		want   hypervisor.Accel
		reason string
	}{
		{"intel", Host{kvm, intel}, hypervisor.AccelKVM, ""},
		{"amd", Host{kvm, amd}, hypervisor.AccelKVM, ""},
		{"no device", Host{none, intel}, hypervisor.AccelTCG, "no such file"},
		{"no extensions", Host{kvm, plain}, hypervisor.AccelTCG, "neither vmx nor svm"},
		{"no cpuinfo", Host{kvm, none}, hypervisor.AccelTCG, "no such file"},
	} {
		got, reason := DetectAccel(tt.host)
		if got != tt.want || !strings.Contains(reason, tt.reason) || (tt.reason == "") != (reason == "") {
			t.Errorf("%s: %s, %q", tt.name, got, reason)
		}
	}
}
