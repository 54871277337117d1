package main

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"github.com/katabox/katabox/shim/monitor"
)

// FuzzWriteLogLine shows lines with a guest's text on a terminal: each is one line, of
// printable characters.
func FuzzWriteLogLine(f *testing.F) {
	f.Add("hello", "agent", "name", "value")
	f.Add("\x1b[2J\r\nforged", "con\nsole", "a=b", "\u202e\xff")
	f.Add("a=\"b\"", "", "msg", "")
	f.Fuzz(func(t *testing.T, message, source, name, value string) {
		text, err := json.Marshal(map[string]any{"msg": message, "source": source, "level": source, name: value})
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		line := monitor.LogLine{Level: source, Message: message, Source: source, JSON: text}
		if err := writeLogLine(&out, line); err != nil {
			t.Fatal(err)
		}
		shown, ended := strings.CutSuffix(out.String(), "\n")
		if !ended || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %q", text, out.String())
		}
	})
}
