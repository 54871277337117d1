package qmp

import (
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLineReader(t *testing.T) {
	long := strings.Repeat("l", 100<<10)
	r := newLineReader(strings.NewReader("one\r\n"+long+"\ntwo"), 200<<10)
	for _, want := range []string{"one\r\n", long + "\n"} {
		if got, err := r.next(); err != nil || string(got) != want {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	if got, err := r.next(); !errors.Is(err, io.EOF) {
		t.Errorf("a line without its end: %q, %v", got, err)
	}
	r = newLineReader(strings.NewReader(long), 10<<10)
	if _, err := r.next(); err == nil || errors.Is(err, io.EOF) {
		t.Errorf("a line over the limit: %v", err)
	}
	if cap(r.buf) > 64<<10 {
		t.Errorf("it took %d bytes to refuse it", cap(r.buf))
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": ""}, "capabilities": ["oob"]}}`,
		`{"return": {}, "id": 1}`,
		`{"id": 18446744073709551616, "return": null}`,
		`{"id": 7, "error": {"class": "DeviceNotFound", "desc": "Device 'x' not found"}}`,
		`{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "SHUTDOWN", "data": {"guest": true, "reason": "guest-reset"}}`,
		`{"event": "X", "return": 1, "QMP": null}`,
		`[]`, `null`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		msg, err := decode(line)
		set := 0
		for _, is := range []bool{msg.greeting != nil, msg.event != nil, msg.reply != nil} {
			if is {
				set++
			}
		}
		if (err == nil) != (set == 1) || set > 1 {
			t.Errorf("decode(%q): %d kinds, %v", line, set, err)
		}
		if r := msg.reply; r != nil && r.err == nil && r.value == nil {
			t.Errorf("decode(%q): an empty reply", line)
		}
	})
}

// A refusal goes to the engine and into logs only up to a bound.
func TestRefusalIsBounded(t *testing.T) {
	long := strings.Repeat("ä", maxDesc)
	line := `{"id": 1, "error": {"class": "` + long + `", "desc": "` + long + `"}}`
	m, err := decode([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if text := m.reply.err.Error(); len(text) > 2*maxDesc+100 || !utf8.ValidString(text) || !strings.HasSuffix(text, "ä [cut]") {
		t.Errorf("%d bytes of an error, at the end %q", len(text), text[max(0, len(text)-20):])
	}
}
