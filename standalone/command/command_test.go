package command

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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
