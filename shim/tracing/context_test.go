package tracing

import (
	"strings"
	"testing"
)

const (
	someTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	someSpan  = "00f067aa0ba902b7"
)

func TestParseContext(t *testing.T) {
	for header, want := range map[string]struct {
		ok, dropped bool
	}{
		"00-" + someTrace + "-" + someSpan + "-01":                  {true, false},
		"00-" + someTrace + "-" + someSpan + "-03":                  {true, false},
		"00-" + someTrace + "-" + someSpan + "-00":                  {true, true},
		"01-" + someTrace + "-" + someSpan + "-01-what-comes-later": {true, false},
		"":                                 {},
		"00-" + someTrace + "-" + someSpan: {},
		"00-" + someTrace + "-" + someSpan + "-01-more":                             {},
		"ff-" + someTrace + "-" + someSpan + "-01":                                  {},
		"0x-" + someTrace + "-" + someSpan + "-01":                                  {},
		"00-" + strings.ToUpper(someTrace) + "-" + someSpan + "-01":                 {},
		"00-" + strings.Repeat("0", traceDigits) + "-" + someSpan + "-01":           {},
		"00-" + someTrace + "-" + strings.Repeat("0", spanDigits) + "-01":           {},
		"00-" + someTrace[1:] + "-" + someSpan + "-01":                              {},
		"00-" + someTrace + "-" + someSpan + "-1":                                   {},
		"00-" + someTrace + "-" + strings.Replace(someSpan, "f", "\x00", 1) + "-01": {},
	} {
		c, ok := parseContext(header)
		if ok != want.ok || c.dropped != want.dropped || ok && (c.trace != someTrace || c.span != someSpan) {
			t.Errorf("%q: %+v, %v", header, c, ok)
		}
	}
}

// What an engine sends becomes ids that ReadBatch accepts, or nothing.
func FuzzParseContext(f *testing.F) {
	f.Add("00-" + someTrace + "-" + someSpan + "-01")
	f.Add("cc-" + someTrace + "-" + someSpan + "-00-x")
	f.Fuzz(func(t *testing.T, header string) {
		c, ok := parseContext(header)
		if ok && (len(c.trace) != traceDigits || len(c.span) != spanDigits || !isHex(c.trace+c.span)) {
			t.Errorf("%q: %+v", header, c)
		}
	})
}
