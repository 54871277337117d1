package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/katabox/katabox/virtcontainers/guest"
)

func TestIPTablesCommand(t *testing.T) {
	h, dir := withRecords(t, false), t.TempDir()
	for args, want := range map[string]string{"p1": "IPv6 false", "p --v6": "IPv6 true"} {
		// Not on a terminal the text is the guest's.
		args := append([]string{"iptables", "get", "--sandbox-id"}, strings.Fields(args)...)
		if out, errs, code := call(t, h, args...); code != 0 || errs != "" || out != "*filter\n# \x1b[2J "+want+"\nCOMMIT\n" {
			t.Errorf("%v: %d, %q %q", args, code, out, errs)
		}
	}
	if out, _, code := call(t, h, "iptables", "get", "--sandbox-id", "p1", "--json"); code != 0 || !strings.Contains(out, `"rules": "*filter\n# \u001b[2J IPv6 false\nCOMMIT\n"`) {
		t.Errorf("as JSON: %d, %q", code, out)
	}
	file, long := filepath.Join(dir, "rules"), filepath.Join(dir, "long")
	for path, text := range map[string]string{file: "COMMIT\n", long: strings.Repeat("#", guest.MaxIPTables+1)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string]string{
		"get":                              "\"sandbox-id\" not set",
		"get --sandbox-id other":           "no pod of that id runs",
		"get --sandbox-id p1 x":            "unexpected argument \"x\"",
		"set --sandbox-id p1 a b":          "unexpected argument \"b\"",
		"set --sandbox-id p1 /none":        "read rules: open /none",
		"set --sandbox-id p1 " + long:      "there are more than 1048576 bytes",
		"set --sandbox-id p1 " + file:      `IPv6 false, given "COMMIT\n"`,
		"set --sandbox-id p1 --v6 " + file: `IPv6 true, given "COMMIT\n"`,
		"list":                             `unknown command "list": want iptables get or set`,
		"get --sandbox-id p1 --ipv6":       "see kata-runtime iptables get --help",
	} {
		out, errs, code := call(t, h, append([]string{"iptables"}, strings.Fields(args)...)...)
		if code != 1 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: %d, %q %q, want one line with %q", args, code, out, errs, want)
		}
	}
}

// On a terminal a guest's rules control nothing, and all lines remain lines.
func FuzzWriteRules(f *testing.F) {
	for _, text := range []string{"", "*filter\nCOMMIT\n", "# \x1b[2J\r\n\xff\u009b2J\u2028", "no end"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var out strings.Builder
		if err := writeRules(&out, text, true); err != nil {
			t.Fatal(err)
		}
		shown := out.String()
		if strings.ContainsFunc(shown, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %q", text, shown)
		}
		lines := 0
		for range strings.Lines(text) {
			lines++
		}
		if strings.Count(shown, "\n") != lines {
			t.Errorf("%q has %d lines, shown as %q", text, lines, shown)
		}
	})
}
