package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/client"
)

// call runs the command line, with other commands beside the OCI runtime's.
func call(t *testing.T, others []*cli.Command, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	app := &cli.Command{
		Name: "kata-runtime", Writer: &out, ErrWriter: &errs, HideVersion: true, HideHelpCommand: true,
		Flags: Flags(), Commands: others, ExitErrHandler: func(context.Context, *cli.Command, error) {},
	}
	Add(app)
	SetConventions(app)
	err := app.Run(t.Context(), append([]string{"kata-runtime"}, args...))
	var exit ExitError
	switch {
	case errors.As(err, &exit):
		code = int(exit)
	case err != nil:
		t.Errorf("%v: the error %v was not reported", args, err)
	}
	return out.String(), errs.String(), code
}

// withShim puts a program with the shim's name into PATH; it must not be called.
func withShim(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, client.ShimName), []byte("#!/bin/false\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestRefused(t *testing.T) {
	withShim(t)
	dir := t.TempDir()
	config := filepath.Join(dir, "process.json")
	if err := os.WriteFile(config, []byte(`{"cwd":"/"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--rootless", "true", "list"}, 1, "needs root"},
		{[]string{"--log-format", "xml", "list"}, 1, "want text or json"},
		{[]string{"state"}, 1, "want a container's id"},
		{[]string{"state", "a", "b"}, 1, `unexpected argument \"b\"`},
		{[]string{"state", "none"}, 1, "container does not exist"},
		{[]string{"start", "a/b"}, 1, "want 1 to 128 letters"},
		{[]string{"kill", "none", "NOPE"}, 1, "unknown signal"},
		{[]string{"list", "--format", "yaml"}, 1, "want table or json"},
		{[]string{"create", "--bundle", dir, "c1"}, 1, "config.json"},
		{[]string{"create", "--preserve-fds", "1", "c1"}, 1, "--preserve-fds"},
		{[]string{"run", "--bundle", dir, "c1"}, 1, "config.json"},
		{[]string{"run", "--keep", "--preserve-fds", "1", "c1"}, 1, "--preserve-fds"},
		{[]string{"update", "--resources", "/nowhere", "c1"}, 1, "read resources"},
		{[]string{"checkpoint", "--manage-cgroups-mode", "hard", "none"}, 1, "want soft, full, strict or ignore"},
		{[]string{"checkpoint", "--manage-cgroups-mode", "strict", "none"}, 1, "container does not exist"},
		{[]string{"events", "--interval", "0s", "c1"}, 1, "--interval"},
		{[]string{"exec", "c1"}, 255, "want a command, or --process"},
		{[]string{"exec", "--cgroup", "/x", "c1", "sh"}, 255, "--cgroup"},
		{[]string{"exec", "--process", config, "c1"}, 255, "args is missing"},
		{[]string{"exec", "--process", "/nowhere", "c1"}, 255, "read process"},
		{[]string{"create", "--preserve-fds", "0", "--bundle", dir, "c1"}, 1, "config.json"},
		{[]string{"exec", "--preserve-fds", "0", "c1", "sh"}, 255, "container does not exist"},
		{[]string{"exec", "--preserve-fds=1", "c1", "sh"}, 255, "--preserve-fds"},
		{[]string{"exec", "--ignore-paused=false", "c1", "sh"}, 255, "container does not exist"},
		{[]string{"exec", "--apparmor", "", "c1", "sh"}, 255, "container does not exist"},
		{[]string{"delete", "--forse", "c1"}, 1, "delete: flag provided but not defined"},
		// Podman takes a flag that needs an argument for the ability to restore into a pod.
		{[]string{"restore", "--lsm-mount-context"}, 1, "restore: flag provided but not defined"},
		{[]string{"create", "--bundle"}, 1, "create: flag needs an argument"},
	}
	for _, tt := range tests {
		args := append([]string{"--root", filepath.Join(dir, "root")}, tt.args...)
		_, stderr, code := call(t, nil, args...)
		if code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit %d, %q; want %d and %q", tt.args, code, stderr, tt.code, tt.want)
		}
	}
}

// Flags may follow the id, as with runc, but for the commands whose arguments are
// another program's.
func TestFlagsAfterTheID(t *testing.T) {
	withShim(t)
	dir := t.TempDir()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"delete", "none", "--force"}, 0, ""},
		{[]string{"delete", "none", "-f"}, 0, ""},
		{[]string{"kill", "none", "KILL", "--all"}, 1, "container does not exist"},
		{[]string{"update", "none", "--memory", "1048576"}, 1, "container does not exist"},
		{[]string{"create", "none", "--bundle", dir}, 1, dir + "/config.json"},
		{[]string{"events", "none", "--stats"}, 1, "container does not exist"},
		{[]string{"exec", "none", "ls", "--all"}, 255, "container does not exist"},
		{[]string{"exec", "none", "--tty"}, 255, "container does not exist"},
		{[]string{"ps", "none", "-f"}, 1, "container does not exist"},
	} {
		_, stderr, code := call(t, nil, append([]string{"--root", dir}, tt.args...)...)
		if code != tt.code || !strings.Contains(stderr, tt.want) {
			t.Errorf("%v: exit %d, %q; want %d and %q", tt.args, code, stderr, tt.code, tt.want)
		}
	}
}

// writeStopped makes a container that has stopped below root.
func writeStopped(t *testing.T, root, id string) {
	t.Helper()
	dir := filepath.Join(root, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"record.json": `{"id": "` + id + `"}`,
		"config.json": `{"root": {"path": "/"}, "process": {"args": ["sh"], "cwd": "/"}, "linux": {}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOfAStoppedContainer(t *testing.T) {
	withShim(t)
	root := t.TempDir()
	writeStopped(t, root, "c1")
	for _, args := range [][]string{{"events", "c1"}, {"events", "--stats", "c1"}} {
		if _, stderr, code := call(t, nil, append([]string{"--root", root}, args...)...); code != 1 || !strings.Contains(stderr, "container with id c1 is not running") {
			t.Errorf("%v: exit %d, %q", args, code, stderr)
		}
	}
	out, stderr, code := call(t, nil, "--root", root, "list", "--format", "json")
	var states []struct{ ID, Status, Owner string }
	if err := json.Unmarshal([]byte(out), &states); err != nil || code != 0 || len(states) != 1 || states[0].Status != "stopped" || states[0].Owner != "root" {
		t.Errorf("list: exit %d, %s, %s, %v; want the owner root", code, out, stderr, err)
	}
}

// What ps says about its options is in the error, as with runc.
func TestOptionsOfPs(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	writeStopped(t, root, "c1")
	if err := os.WriteFile(filepath.Join(dir, "ps"), []byte("#!/bin/sh\necho \"no option $1\" >&2; exit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	withShim(t)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if _, stderr, code := call(t, nil, "--root", root, "ps", "c1", "-odd"); code != 1 || !strings.Contains(stderr, "exit status 1: no option -odd") {
		t.Errorf("exit %d, %q", code, stderr)
	}
}

// With a log the error is one JSON line in it and plain text on stderr.
func TestLog(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log.json")
	_, stderr, code := call(t, nil, "--log", name, "--log-format", "json", "--rootless", "true", "list")
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var entry struct{ Level, Msg, Time string }
	if err := json.Unmarshal(data, &entry); err != nil || entry.Level != "error" || entry.Time == "" {
		t.Errorf("the log holds %q, %v", data, err)
	}
	if code != 1 || strings.TrimSpace(stderr) != entry.Msg {
		t.Errorf("exit %d, stderr %q, log %q", code, stderr, entry.Msg)
	}
}

// A relative root is one of the caller's working directory, as with runc: the shim has
// another.
func TestRelativeRoot(t *testing.T) {
	withShim(t)
	dir := t.TempDir()
	t.Chdir(dir)
	root := ""
	probe := &cli.Command{Name: "probe", Action: func(_ context.Context, c *cli.Command) error {
		r, err := runtimeOf(c)
		if err == nil {
			root = r.Root
		}
		return err
	}}
	if call(t, []*cli.Command{probe}, "--root", "here", "probe"); root != filepath.Join(dir, "here") {
		t.Errorf("root %q, want %q", root, filepath.Join(dir, "here"))
	}
}

// Parts of an error may be a guest's: they control no terminal.
func TestErrorsArePrintable(t *testing.T) {
	withShim(t)
	for _, flags := range [][]string{nil, {"--log", filepath.Join(t.TempDir(), "log")}} {
		_, stderr, code := call(t, nil, append(flags, "create", "--bundle", "/x\x1b[2J\a", "c1")...)
		if code != 1 || !strings.Contains(stderr, "x1b[2J") || strings.ContainsAny(stderr, "\x1b\a") {
			t.Errorf("%v: exit %d, %q", flags, code, stderr)
		}
	}
}

// A command that both have is the other's, unless it is about a container below
// --root.
func TestAdd(t *testing.T) {
	called := false
	other := func() []*cli.Command {
		called = false
		return []*cli.Command{{Name: "exec", Action: func(ctx context.Context, c *cli.Command) error {
			called = c.String("name") == "x" && c.Args().First() == "c1"
			return nil
		}, Flags: []cli.Flag{&cli.StringFlag{Name: "name"}}}}
	}
	if _, stderr, code := call(t, other(), "exec", "--name", "x", "c1"); !called || code != 0 {
		t.Errorf("the other's command was not called: %d, %q", code, stderr)
	}
	withShim(t)
	if _, stderr, code := call(t, other(), "--root", t.TempDir(), "exec", "c1", "sh"); called || code != 255 || !strings.Contains(stderr, "does not exist") {
		t.Errorf("with --root: exit %d, %q", code, stderr)
	}
}

// A command without arguments is the OCI runtime's if it has a flag that only
// that one's has.
func TestAddByFlag(t *testing.T) {
	withShim(t)
	for args, ours := range map[string]bool{
		"": false, "--json": false, "--json -q": true, "-q": true, "--format json": true, "--format=json": true, "-f json": true, "quiet": false,
	} {
		called := false
		other := &cli.Command{
			Name: "list", Flags: []cli.Flag{&cli.BoolFlag{Name: "json"}},
			Action: func(context.Context, *cli.Command) error { called = true; return nil },
		}
		call(t, []*cli.Command{other}, append([]string{"list"}, strings.Fields(args)...)...)
		if called == ours {
			t.Errorf("list %s: the OCI runtime's is %t, want %t", args, !called, ours)
		}
	}
}

// Podman's calls have no --root, also for a container that is gone. A container in the
// guest program's arguments does not count.
func TestAddForEngines(t *testing.T) {
	withShim(t)
	root := t.TempDir()
	writeStopped(t, root, "db")
	for args, ours := range map[string]bool{
		"--log L --log-format json exec --pid-file P --process F --detach gone": true,
		"--log L exec gone sh":             true,
		"--systemd-cgroup ps gone":         true,
		"exec --detach gone sh":            true,
		"exec -e A=b --pid-file=P gone sh": true,
		"exec --name x --cwd / gone pwd":   true,
		"exec --name db web pwd":           false,
		"exec --env db web pwd":            false,
		"exec db sh":                       true,
		"exec -- db sh":                    true,
		"exec web curl db":                 false,
		"exec web grep --detach db":        false,
		"exec -- web sh":                   false,
		"exec -e A=b web sh":               false,
		"exec":                             false,
		"ps db -ef":                        true,
		"ps --format json gone":            true,
		"ps web db":                        false,
		"ps":                               false,
		"--log L run gone":                 true,
		"run --bundle /nowhere gone":       true,
		"run -b /nowhere gone":             true,
		"run --keep gone":                  true,
		"run db sh":                        false, // an image may have a container's name
		"run --name db web":                false,
	} {
		t.Chdir(t.TempDir()) // --log's
		called := false
		others := make([]*cli.Command, 3)
		for i, name := range []string{"exec", "ps", "run"} {
			others[i] = &cli.Command{
				Name: name, Flags: []cli.Flag{&cli.StringFlag{Name: "name"}, &cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}}},
				Action: func(context.Context, *cli.Command) error { called = true; return nil },
			}
		}
		app := &cli.Command{Name: "kata-runtime", Flags: Flags(), Commands: others, Writer: io.Discard, ErrWriter: io.Discard,
			ExitErrHandler: func(context.Context, *cli.Command, error) {}}
		app.Flags[0].(*cli.StringFlag).Value = root
		Add(app)
		SetConventions(app)
		err := app.Run(t.Context(), append([]string{"kata-runtime"}, strings.Fields(args)...))
		_, reported := errors.AsType[ExitError](err)
		if called == ours || err != nil && !reported {
			t.Errorf("%s: the other's was called: %t, %v; want the OCI runtime's %t", args, called, err, ours)
		}
	}
}

func TestSpec(t *testing.T) {
	dir := t.TempDir()
	if _, stderr, code := call(t, nil, "spec", "--bundle", dir); code != 0 {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil || !json.Valid(data) {
		t.Errorf("%s, %v", data, err)
	}
	if _, stderr, code := call(t, nil, "spec", "--bundle", dir); code != 1 || !strings.Contains(stderr, "remove it first") {
		t.Errorf("again: exit %d, %q", code, stderr)
	}
	if out, _, code := call(t, nil, "features"); code != 0 || !json.Valid([]byte(out)) {
		t.Errorf("features: exit %d, %q", code, out)
	}
}
