package main

import (
	"strings"
	"testing"
)

func TestNodeQEMU(t *testing.T) {
	for printed, want := range map[string]string{
		"QEMU emulator version 6.2.0 (Debian 1:6.2)\nCopyright ...\n": "version 6.2.0 (Debian 1:6.2), and at least 7.0",
		"QEMU emulator version 7.0.0\n":                               "",
		"QEMU emulator version 10.0.2\n":                              "",
		"hello":                                                       "", // as check, which only warns
	} {
		got := ""
		if err := nodeQEMU.Check(printed); err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) || (got == "") != (want == "") {
			t.Errorf("%q: %q, want %q", printed, got, want)
		}
	}
	if got, err := nodeQEMU.Program(configure(t, "hypervisor.qemu.path = '/opt/qemu'")); got != "/opt/qemu" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := nodeQEMU.Program(configure(t, "hypervisor.qemu.default_memory = 'x'")); err == nil || !strings.Contains(err.Error(), "default_memory") {
		t.Errorf("error %v", err)
	}
}
