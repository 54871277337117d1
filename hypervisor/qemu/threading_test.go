package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/katabox/katabox/hypervisor"
)

// printer makes a program that prints a line, and the path of a file that is there once it ran.
func printer(t *testing.T, line string) (path, ran string) {
	t.Helper()
	dir := t.TempDir()
	path, ran = filepath.Join(dir, "qemu"), filepath.Join(dir, "ran")
	script := fmt.Sprintf("#!/bin/sh\n[ \"$*\" = --version ] || exit 1\ntouch %s\ncat <<'END'\n%s\nCopyright\nEND\n", ran, line)
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	return path, ran
}

func TestThreading(t *testing.T) {
	const auto, multi, single = hypervisor.ThreadingAuto, hypervisor.ThreadingMulti, hypervisor.ThreadingSingle
	bookworm := "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)"
	for _, tt := range []struct {
		line    string
		accel   hypervisor.Accel
		chosen  hypervisor.Threading
		most    uint32
		want    hypervisor.Threading
		mustAsk bool
	}{
		{bookworm, hypervisor.AccelTCG, auto, 2, single, true},
		{bookworm, hypervisor.AccelTCG, "", 2, single, true},
		{"QEMU emulator version 8.0.5", hypervisor.AccelTCG, auto, 2, single, true},
		{"QEMU emulator version 8.1.0", hypervisor.AccelTCG, auto, 2, multi, true},
		{"QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)", hypervisor.AccelTCG, auto, 2, multi, true},
		{"something else", hypervisor.AccelTCG, auto, 2, single, true},
		{bookworm, hypervisor.AccelTCG, auto, 1, auto, false},
		{bookworm, hypervisor.AccelTCG, multi, 2, multi, false},
		{bookworm, hypervisor.AccelTCG, single, 2, single, false},
		{bookworm, hypervisor.AccelKVM, auto, 2, auto, false},
	} {
		spec := goodSpec()
		var ran string
		spec.Path, ran = printer(t, tt.line)
		spec.Accel, spec.Threading, spec.MaxVCPUs = tt.accel, tt.chosen, tt.most
		if got := threading(t.Context(), spec); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
		if _, err := os.Stat(ran); (err == nil) != tt.mustAsk {
			t.Errorf("%+v: the program's run: %v", tt, err)
		}
	}
	spec := goodSpec()
	spec.Path, spec.MaxVCPUs = filepath.Join(t.TempDir(), "none"), 2
	if got := threading(t.Context(), spec); got != single {
		t.Errorf("a program that does not run: %q", got)
	}
}

func TestAccel(t *testing.T) {
	for _, tt := range []struct {
		accel     hypervisor.Accel
		mib       uint64
		threading hypervisor.Threading
		want      string
	}{
		{hypervisor.AccelTCG, 0, "", "tcg"},
		{hypervisor.AccelTCG, 0, hypervisor.ThreadingAuto, "tcg"},
		{hypervisor.AccelTCG, 0, hypervisor.ThreadingSingle, "tcg,thread=single"},
		{hypervisor.AccelTCG, 64, hypervisor.ThreadingMulti, "tcg,tb-size=64,thread=multi"},
		{hypervisor.AccelKVM, 64, hypervisor.ThreadingSingle, "kvm"},
	} {
		spec := goodSpec()
		spec.Accel, spec.TranslationMiB, spec.Threading = tt.accel, tt.mib, tt.threading
		if got := accel(spec); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
