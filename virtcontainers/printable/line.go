package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns text as one line of printable characters. White space becomes
// blanks, one for each character, and other characters are escaped as in Go's
// strings: "\x1b", "\u202e", "\xff" for a byte that is not UTF-8. Text that is
// such a line already is returned as it is.
func Line(text string) string {
	if !strings.ContainsFunc(text, odd) {
		return text
	}
	var line strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError:
			line.WriteString(quoted(text[i:]))
		case unicode.IsSpace(r):
			line.WriteByte(' ')
		case unicode.IsPrint(r):
			line.WriteRune(r)
		default:
			line.WriteString(quoted(string(r)))
		}
	}
	return line.String()
}

// odd reports whether a character is not shown as it is. One that is not UTF-8
// comes as utf8.RuneError, which is printable.
func odd(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// quoted returns the first character of a text as it is in a string literal.
func quoted(text string) string {
	_, size := utf8.DecodeRuneInString(text)
	literal := strconv.Quote(text[:size])
	return literal[1 : len(literal)-1]
}

// Lines is Line for text that may have several lines: each stays one.
func Lines(text string) string {
	if !strings.Contains(text, "\n") {
		return Line(text)
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = Line(line)
	}
	return strings.Join(lines, "\n")
}
