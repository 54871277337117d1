package printable

import (
	"strings"
	"testing"
	"unicode"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "",
		`a "plain" line \ ü 日`:   `a "plain" line \ ü 日`,
		"two\nlines\r\n":         "two lines  ",
		"a\ttab\v\f\u00a0\u2028": "a tab    ",
		"\x1b[2J\a\x00\x7f":      `\x1b[2J\a\x00\x7f`,
		"\u009b2J\u202e\ufeff":   `\u009b2J\u202e\ufeff`,
		"\xff\xc3(\u00e9\ufffd":  "\\xff\\xc3(é\ufffd",
	} {
		if got := Line(in); got != want {
			t.Errorf("Line(%q) = %q, want %q", in, got, want)
		}
	}
}

// A guest's text stays in its line and controls nothing.
func FuzzLine(f *testing.F) {
	for _, text := range []string{"", "plain", "two\nlines", "# \x1b[2J\r\n\xff\u009b2J\u2028", "\\\"\ufffd"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		line := Line(text)
		if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("Line(%q) = %q", text, line)
		}
		if again := Line(line); again != line {
			t.Errorf("Line(%q) = %q, and then %q", text, line, again)
		}
		if len(line) > 10*len(text) {
			t.Errorf("Line makes %d bytes of %d", len(line), len(text))
		}
	})
}

func TestLines(t *testing.T) {
	for in, want := range map[string]string{"": "", "\n": "\n", "a\x1b\nb\rc\n": "a\\x1b\nb c\n", "one\a": `one\a`} {
		if got := Lines(in); got != want {
			t.Errorf("%q is shown as %q, want %q", in, got, want)
		}
	}
}
