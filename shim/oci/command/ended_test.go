package command

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/oci/monitor"
)

// Output that could not be written is an error, also of a process that ended with 0. Its
// own code stays otherwise.
func TestEnded(t *testing.T) {
	lost := errors.New("standard output: full")
	for _, c := range []struct {
		exit monitor.Exit
		code int
		says string
	}{
		{monitor.Exit{}, 0, ""},
		{monitor.Exit{Code: 3}, 3, ""},
		{monitor.Exit{Lost: lost}, 125, lost.Error()},
		{monitor.Exit{Code: 3, Lost: lost}, 3, lost.Error()},
	} {
		one := &cli.Command{Name: "one", Action: reporting(func(context.Context, *cli.Command) error { return ended(c.exit) })}
		_, stderr, code := call(t, []*cli.Command{one}, "one")
		if code != c.code || !strings.Contains(stderr, c.says) || c.says == "" && stderr != "" {
			t.Errorf("%+v: exit code %d, and it says %q", c.exit, code, stderr)
		}
	}
}
