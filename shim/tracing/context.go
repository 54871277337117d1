package tracing

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// spanContext is where a span is: in which trace, and under which id.
type spanContext struct {
	// trace and span are lower-case hexadecimal, of 32 and 16 digits.
	trace, span string
	// dropped is set in traces that are not recorded: their origin has decided
	// so, for all spans.
	dropped bool
}

const traceDigits, spanDigits = 32, 16

// newID returns a random id of that many hexadecimal digits.
func newID(digits int) string {
	id := make([]byte, digits/2)
	_, _ = rand.Read(id) // never fails (crypto/rand)
	return hex.EncodeToString(id)
}

// parseContext reads the header traceparent of the W3C Recommendation "Trace
// Context": version, trace, span and flags, of which the lowest is "sampled".
func parseContext(header string) (c spanContext, ok bool) {
	fields := strings.Split(header, "-")
	if len(fields) < 4 || len(fields[0]) != 2 || !isHex(fields[0]) || fields[0] == "ff" || fields[0] == "00" && len(fields) != 4 {
		return spanContext{}, false
	}
	trace, span, flags := fields[1], fields[2], fields[3]
	for _, f := range []struct {
		text   string
		digits int
		zero   bool // may be all zeros
	}{{trace, traceDigits, false}, {span, spanDigits, false}, {flags, 2, true}} {
		if len(f.text) != f.digits || !isHex(f.text) || !f.zero && strings.Trim(f.text, "0") == "" {
			return spanContext{}, false
		}
	}
	bits, err := hex.DecodeString(flags)
	return spanContext{trace: trace, span: span, dropped: err == nil && bits[0]&1 == 0}, err == nil
}

// isHex reports whether the text has only lower-case hexadecimal digits.
func isHex(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }
