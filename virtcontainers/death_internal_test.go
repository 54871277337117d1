package virtcontainers

import (
	"strings"
	"testing"
)

func TestCrashIn(t *testing.T) {
	for console, want := range map[string]string{
		"": "",
		"kata-agent: ready\n[    1.2] EXT4-fs: mounted": "",
		"[    9.123456] sysrq: Trigger a crash\n[    9.200000] Kernel panic - not syncing: sysrq triggered crash\n[    9.3] CPU: 0": "Kernel panic - not syncing: sysrq triggered crash",
		"kata-agent: ready\nfatal error: newosproc\n\ngoroutine 1:\n[   20.1] Kernel panic - not syncing: Attempted to kill init!":  "fatal error: newosproc",
		"panic: runtime error: index out of range\n\ngoroutine 7 [running]:":                                                        "panic: runtime error: index out of range",
		"a container prints panic: no":               "",
		"panic: " + strings.Repeat("x", 1000) + "\n": "panic: " + strings.Repeat("x", longestCrash-len("panic: ")),
	} {
		if got := crashIn(console); got != want {
			t.Errorf("%.60q: %q, want %q", console, got, want)
		}
	}
}
