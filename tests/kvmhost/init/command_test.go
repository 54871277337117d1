package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// play runs one command as the server does and returns what the host receives:
// both outputs and the exit.
func play(t *testing.T, c wire.Command, input string) (out, errs string, exit wire.Exit) {
	t.Helper()
	r, w := io.Pipe()
	t.Cleanup(func() { _ = r.Close() })
	s := &server{port: w}
	go func() {
		s.start(c)
		if s.input != nil {
			_, _ = io.WriteString(s.input, input) // it may have ended
			if !c.Terminal {
				_ = s.input.Close()
			}
		}
	}()
	for {
		kind, data, err := wire.Read(r)
		if err != nil {
			t.Fatal(err)
		}
		switch kind {
		case wire.KindOutput:
			out += string(data)
		case wire.KindErrors:
			errs += string(data)
		case wire.KindExit:
			if err := json.Unmarshal(data, &exit); err != nil {
				t.Fatal(err)
			}
			return out, errs, exit
		default:
			t.Fatalf("frame %q", kind)
		}
	}
}

func shell(script string) wire.Command {
	return wire.Command{Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin", "WORD=w"}, Dir: "/"}
}

func TestCommands(t *testing.T) {
	for _, test := range []struct {
		name, script, input string
		out, errs           string
		exit                wire.Exit
	}{
		{"outputs and code", "echo $WORD; pwd; echo e >&2; exit 3", "", "w\n/\n", "e\n", wire.Exit{Code: 3}},
		{"input", "cat", "some\ninput", "some\ninput", "", wire.Exit{}},
		{"signal", "kill -TERM $$", "", "", "", wire.Exit{Code: 143}},
	} {
		out, errs, exit := play(t, shell(test.script), test.input)
		if out != test.out || errs != test.errs || exit != test.exit {
			t.Errorf("%s: %q, %q, %v; want %q, %q, %v", test.name, out, errs, exit, test.out, test.errs, test.exit)
		}
	}
}

func TestCommandThatIsNotThere(t *testing.T) {
	for _, c := range []wire.Command{{}, {Args: []string{"no-such-program"}}} {
		if _, _, exit := play(t, c, ""); exit.Code != 127 || exit.Problem == "" {
			t.Errorf("%v: %v, want code 127 and why", c.Args, exit)
		}
	}
}

func TestCommandOnATerminal(t *testing.T) {
	c := shell("stty size; read word; echo got $word")
	c.Terminal, c.Rows, c.Columns = true, 33, 101
	out, _, exit := play(t, c, "it\n")
	if !strings.Contains(out, "33 101\r\n") || !strings.Contains(out, "got it\r\n") || exit != (wire.Exit{}) {
		t.Errorf("%q, %v; want the size, the word and code 0", out, exit)
	}
}

func TestProblemsReachTheServer(t *testing.T) {
	want := []string{"load module x: no", "stat /dev/kvm: no such file"}
	for _, e := range asEnv(want) {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	if diff := cmp.Diff(want, problemsFromEnv()); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}
