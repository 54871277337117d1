package main

import (
	"strings"
	"testing"
)

// Commands and flags that scripts for Kata Containers use do the same as ours.
func TestKatasCommands(t *testing.T) {
	file := configure(t, "[hypervisor.qemu]\ndefault_memory = 3072\n")
	for _, same := range [][2]string{
		{"kata-env --config FILE", "env --config FILE"},
		{"--config FILE env --json", "env --json --config FILE"},
		{"--kata-config FILE kata-env", "env --config FILE"},
		{"kata-check --config FILE", "check --config FILE"},
		{"--config FILE check", "check --config FILE"},
		{"check --no-network-checks --verbose --strict --config FILE", "check --config FILE"},
		{"check -n -v -s --config FILE", "check --config FILE"},
		{"--config FILE factory status", "factory status --config FILE"},
	} {
		var outs [2]string
		for i, line := range same {
			out, errs, code := call(t, newFakeHost(t).host, strings.Fields(strings.ReplaceAll(line, "FILE", file))...)
			if code != 0 || errs != "" {
				t.Errorf("%s: exit %d, %q", line, code, errs)
			}
			outs[i] = out
		}
		if outs[0] != outs[1] || outs[0] == "" {
			t.Errorf("%s prints %q; %s prints %q", same[0], outs[0], same[1], outs[1])
		}
	}
}

// A flag before a command that does not read it is an error, and not ignored.
func TestKatasFlagsBeforeOtherCommands(t *testing.T) {
	for line, want := range map[string]string{
		"--config /c pods":                 "--config: the command pods does not read it: want the configuration in KATA_CONF_FILE",
		"--config /c run alpine":           "--config: the command run does not read it",
		"--show-default-config-paths env":  "--show-default-config-paths: want no command",
		"--config /no/such/file env":       "find configuration /no/such/file",
		"--config /no/such/file chek":      `unknown command "chek"`,
		"check --check-version-only":       "flag provided but not defined: -check-version-only",
		"--config /c env --config /no/one": "find configuration /no/one",
	} {
		out, errs, code := call(t, newFakeHost(t).host, strings.Fields(line)...)
		if code != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d, %q, %q; want %q", line, code, out, errs, want)
		}
	}
}

func TestShowDefaultConfigPaths(t *testing.T) {
	for _, flag := range []string{"--show-default-config-paths", "--kata-show-default-config-paths"} {
		out, errs, code := call(t, newFakeHost(t).host, flag)
		places := strings.Fields(out)
		if code != 0 || errs != "" || len(places) != 3 || places[0] != "/etc/kata-containers/configuration.toml" ||
			!strings.HasSuffix(places[1], "/share/defaults/kata-containers/configuration.toml") ||
			places[2] != "/usr/share/defaults/kata-containers/configuration.toml" {
			t.Errorf("%s: exit %d, %q, %q", flag, code, out, errs)
		}
	}
}
