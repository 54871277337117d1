package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/standalone/container"
)

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	p := newProgress(&out, "busybox")
	for n := 1; n <= 2; n++ {
		p.Layer(n, 2, 1000)
		p.Moved(1000)
	}
	p.end()
	if got, want := out.String(), "kata-runtime: unpacking busybox: 2 layers\n"; got != want {
		t.Errorf("without a terminal: %q, want %q", got, want)
	}
	out.Reset()
	p = &progress{to: &out, terminal: true, image: "busybox"}
	p.Layer(1, 2, 2_000_000)
	p.moved = 1_000_000
	p.draw()
	p.Layer(2, 2, 0)
	p.moved = 5_000_000 // more than was promised
	p.draw()
	p.end()
	half := "layer 1 of 2 [" + strings.Repeat("=", 15) + strings.Repeat(" ", 15) + "] 1.0 of 2.0 MB"
	for _, want := range []string{half, "layer 2 of 2 5.0 MB"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
	if !strings.HasSuffix(out.String(), "\r\x1b[K") {
		t.Errorf("the bar stays: %q", out.String())
	}
	out.Reset()
	p = &progress{to: &out, terminal: true}
	if p.end(); out.Len() != 0 {
		t.Errorf("an image of which nothing is unpacked: %q", out.String())
	}
}

// Only what takes long says that it runs.
func TestSaySlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		done := saySlow(&out, patience, "slow")
		time.Sleep(patience - 1)
		done()
		time.Sleep(patience)
		if out.Len() != 0 {
			t.Errorf("quick: %q", out.String())
		}
		done = saySlow(&out, patience, "slow")
		time.Sleep(patience + 1)
		done()
		if out.String() != "slow\n" {
			t.Errorf("slow: %q", out.String())
		}
	})
}

// The JSON of ps has lists, and an exit code only of what has ended.
func TestLinesOfPS(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l := listing{Pods: []podLine{}}
	l.Containers = append(l.Containers, lineOf(&container.Record{Name: "a", Image: "i", Created: at, Started: &at, Exited: &container.Exit{At: at}}),
		lineOf(&container.Record{Name: "b", Image: "i", Created: at, Command: []string{"sh"}}))
	got, err := json.Marshal(l)
	want := `{"containers":[{"name":"a","status":"exited (0)","created":"2026-01-02T03:04:05Z","started":"2026-01-02T03:04:05Z","exited":"2026-01-02T03:04:05Z",` +
		`"exitCode":0,"image":"i","command":[],"ports":[]},{"name":"b","status":"dead","created":"2026-01-02T03:04:05Z","image":"i","command":["sh"],"ports":[]}],"pods":[]}`
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, diff)
	}
}

// An image's command is its author's text: it is shown in its line, and controls no
// terminal.
func TestPSShowsHostileCommands(t *testing.T) {
	l := listing{Containers: []containerLine{
		lineOf(&container.Record{Name: "a", Image: "i\x1b[2J", Command: []string{"sh", "\x1b]0;title\a", "\nb\tgone"}}),
	}}
	var out strings.Builder
	if err := l.write(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Count(out.String(), "\n") != 2 || strings.ContainsFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
		t.Errorf("%q", out.String())
	}
}

// Warnings follow the table, each with its container's name, and in the JSON.
func TestPSShowsWarnings(t *testing.T) {
	l := listing{Containers: []containerLine{
		lineOf(&container.Record{Name: "a"}), lineOf(&container.Record{Name: "b", Warnings: []string{"one\ntwo", "three"}}),
	}}
	var out strings.Builder
	if err := l.write(&out); err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(out.String(), "\n\n")
	want := "CONTAINERS WITH WARNINGS  WARNING\nb                         one; two\nb                         three\n"
	if diff := cmp.Diff(want, table); diff != "" {
		t.Error(diff)
	}
	if data, err := json.Marshal(l); err != nil || strings.Count(string(data), `"warnings":["one\ntwo","three"]`) != 1 {
		t.Errorf("%s, %v", data, err)
	}
}

// A time that does not fit was one that had passed: the container was killed at once.
func TestStopTime(t *testing.T) {
	t.Setenv("KATABOX_STORE", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	for seconds, want := range map[string]string{"9223372037": "--time 9223372037", "18446744073": "--time 18446744073", "9223372036": "find shim"} {
		err := stopCommand().Run(t.Context(), []string{"stop", "--time", seconds, "none"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("--time %s: %v, want %s", seconds, err, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("HERE", "value")
	got := environment([]string{"A=b=c", "HERE", "NOT_HERE", "EMPTY="})
	if diff := cmp.Diff([]string{"A=b=c", "HERE=value", "EMPTY="}, got); diff != "" {
		t.Error(diff)
	}
}

func TestExitCodes(t *testing.T) {
	wrong := errors.New("wrong")
	for _, test := range []struct {
		code int
		err  error
		want int
		says string
	}{
		{0, wrong, 125, "wrong"},
		{0, &container.StartError{Code: 127, Err: wrong}, 127, "start command: wrong"},
		{0, fmt.Errorf("x: %w", &ExitError{Code: 130, Err: wrong}), 130, "wrong"},
		{42, nil, 42, "exit code 42"},
	} {
		exit, ok := errors.AsType[*ExitError](exitWith(test.code, test.err))
		if !ok || exit.Code != test.want || exit.Error() != test.says {
			t.Errorf("exit code %d, error %v: got %+v", test.code, test.err, exit)
		}
	}
	if err := exitWith(0, nil); err != nil {
		t.Errorf("a command that ended well: %v", err)
	}
}

// In the background -i keeps the input open, and reads nothing.
func TestInputInTheBackground(t *testing.T) {
	t.Setenv(detachedEnv, "1")
	for flags, want := range map[string]bool{"-d": false, "-di": true, "-dit": true, "-dt": false} {
		cmd := runCommand()
		cmd.Action = func(ctx context.Context, c *cli.Command) error {
			stdio, err := makeSession(ctx, nil).stdio(c)
			if err == nil && (stdio.Hold != want || stdio.In != nil) {
				t.Errorf("%s: %+v", flags, stdio)
			}
			return err
		}
		if err := cmd.Run(t.Context(), []string{"run", flags, "image"}); err != nil {
			t.Errorf("%s: %v", flags, err)
		}
	}
}
