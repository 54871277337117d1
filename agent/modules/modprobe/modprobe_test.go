package modprobe

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/agent/modules"
)

var testList = modules.List{
	{Name: "llc", Path: "/llc"},
	{Name: "bridge", Path: "/bridge", Needs: []modules.Need{{Name: "llc"}}, Aliases: []string{"rtnl-link-bridge"}},
	{Name: "fast", Path: "/fast", Aliases: []string{"crypto-sum"}},
	{Name: "slow", Path: "/slow", Aliases: []string{"crypto-sum"}},
}

func TestProbe(t *testing.T) {
	for _, test := range []struct {
		about  string
		args   []string
		broken string
		known  bool
		err    string
		want   []string
	}{
		{about: "by alias", args: []string{"-q", "--", "rtnl-link-bridge"}, known: true, want: []string{"/llc", "/bridge"}},
		{about: "by name", args: []string{"-q", "--", "llc"}, known: true, want: []string{"/llc"}},
		{about: "all that share an alias", args: []string{"-q", "--", "crypto-sum"}, known: true, want: []string{"/fast", "/slow"}},
		{about: "one of them is enough", args: []string{"-q", "--", "crypto-sum"}, broken: "/fast", known: true, want: []string{"/slow"}},
		{about: "what is needed fails", args: []string{"-q", "--", "bridge"}, broken: "/llc", known: true, err: `request for "bridge": load module llc`},
		{about: "iptables' request", args: []string{"llc", "-q"}, known: true, want: []string{"/llc"}},
		{about: "iptables' loud request", args: []string{"llc"}, known: true, want: []string{"/llc"}},
		{about: "an option alone", args: []string{"-q"}, err: "want -q -- NAME"},
		{about: "an empty name", args: []string{"", "-q"}, err: "want -q -- NAME"},
		{about: "unknown", args: []string{"-q", "--", "net-pf-44"}},
		{about: "a path", args: []string{"-q", "--", "/bridge"}},
		{about: "an option as name", args: []string{"-q", "--", "-a"}},
		{about: "no name", args: []string{"-q", "--", ""}, err: "want -q -- NAME"},
		{about: "no arguments", err: "want -q -- NAME"},
		{about: "other options", args: []string{"-r", "--", "bridge"}, err: `got ["-r" "--" "bridge"]`},
		{about: "more names", args: []string{"-q", "--", "bridge", "llc"}, err: "want -q -- NAME"},
	} {
		var calls []string
		known, err := probe(test.args, testList, func(path, _ string) error {
			if path == test.broken {
				return errors.New("broken")
			}
			calls = append(calls, path)
			return nil
		})
		if known != test.known || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%s: known %v, error %v; want %v, %q", test.about, known, err, test.known, test.err)
		}
		if diff := cmp.Diff(test.want, calls); diff != "" {
			t.Errorf("%s: %s", test.about, diff)
		}
	}
}

// Modules that would make links of their own get parameters that prevent it, by
// whichever name they are requested.
func TestParameters(t *testing.T) {
	list := modules.List{
		{Name: "dummy", Path: "/dummy", Aliases: []string{"rtnl-link-dummy"}},
		{Name: "ifb", Path: "/ifb", Aliases: []string{"rtnl-link-ifb"}},
		{Name: "veth", Path: "/veth", Aliases: []string{"rtnl-link-veth"}},
	}
	for name, want := range map[string]string{
		"rtnl-link-dummy": "numdummies=0", "dummy": "numdummies=0", "rtnl-link-ifb": "numifbs=0", "rtnl-link-veth": "",
	} {
		known, err := probe([]string{"-q", "--", name}, list, func(_, params string) error {
			if params != want {
				t.Errorf("%s: parameters %q, want %q", name, params, want)
			}
			return nil
		})
		if !known || err != nil {
			t.Errorf("%s: known %v, error %v", name, known, err)
		}
	}
}

func TestLogLine(t *testing.T) {
	var kmsg bytes.Buffer
	logLine(&kmsg, errors.New("load module a: broken"))
	if got, want := kmsg.String(), "<4>kata-agent: modprobe: load module a: broken\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Started as modprobe, a program with this package does only that. No image has
// a module of the requested name.
func TestTakesOver(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-q", "--", "katabox-no-such-module")
	cmd.Args[0] = "/sbin/modprobe"
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || len(out) > 0 {
		t.Errorf("ended with %v and said %q, want exit status 1 and silence", err, out)
	}
}
