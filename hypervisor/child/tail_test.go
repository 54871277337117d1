package child

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestTailKeepsTheEnd(t *testing.T) {
	for _, limit := range []int{1, 2, 7, 16, 100} {
		for _, chunk := range []int{1, 3, 7, 16, 17, 50} {
			tail := NewTail(limit)
			var all strings.Builder
			for i := 0; all.Len() < 300; i++ {
				s := strings.Repeat(string(rune('a'+i%26)), chunk)
				all.WriteString(s)
				if n, err := tail.Write([]byte(s)); n != chunk || err != nil {
					t.Fatalf("Write: %d, %v", n, err)
				}
				want := all.String()[max(0, all.Len()-limit):]
				if got := tail.String(); got != want {
					t.Fatalf("limit %d, chunk %d: %q, want %q", limit, chunk, got, want)
				}
			}
		}
	}
}

func TestTailIsConcurrent(t *testing.T) {
	tail := NewTail(64)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				fmt.Fprintf(tail, "line %d\n", i)
				if got := tail.String(); len(got) > 64 {
					t.Errorf("%d bytes are kept", len(got))
				}
			}
		})
	}
	wg.Wait()
}

func TestLastLines(t *testing.T) {
	tail := NewTail(100)
	if got := tail.LastLines(3); got != "" {
		t.Errorf("of nothing: %q", got)
	}
	_, _ = tail.Write([]byte("one\r\n\r\n two\n  \nthree"))
	for n, want := range []string{"", "three", "two\nthree", "one\ntwo\nthree", "one\ntwo\nthree"} {
		if got := tail.LastLines(n); got != want {
			t.Errorf("%d lines: %q, want %q", n, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain\tand\nlines\r\n":     "plain\tand\nlines\n",
		"\x1b]0;title\x07\x1b[2J":   "?]0;title??[2J",
		"over\rwrite":               "over?write",
		"bad \xff\xfe utf8":         "bad ?? utf8",
		"right-to-left \u202e mark": "right-to-left ? mark",
		"ümlaut 漢":                  "ümlaut 漢",
		"\x00\x7f\u0085":            "???",
	} {
		if got := Printable(in); got != want {
			t.Errorf("Printable(%q) = %q, want %q", in, got, want)
		}
	}
}

// The guest controls what is on the console.
func FuzzPrintable(f *testing.F) {
	f.Add("plain\r\n")
	f.Add("\x1b[31m\xff\u202e")
	f.Fuzz(func(t *testing.T, in string) {
		out := Printable(in)
		if !utf8.ValidString(out) || len(out) > len(in) {
			t.Errorf("Printable(%q) = %q", in, out)
		}
		for _, r := range out {
			if unicode.IsControl(r) && r != '\n' && r != '\t' {
				t.Errorf("Printable(%q) = %q", in, out)
			}
		}
		if again := Printable(out); again != out {
			t.Errorf("Printable(%q) = %q, and then %q", in, out, again)
		}
	})
}

func TestLineWriter(t *testing.T) {
	var got []string
	w := &lineWriter{emit: func(l string) { got = append(got, l) }}
	long := strings.Repeat("x", maxLine+10)
	for _, s := range []string{"a", "b\nc\r\n\n", long, "\nend"} {
		if n, err := w.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
	}
	w.Flush()
	want := []string{"ab", "c", long[:maxLine], "xxxxxxxxxx", "end"}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("lines of %d: %.100q", len(got), got)
	}
}
