package run

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// refusal is a call that must fail, and what its one line of error must name:
// the key, the value, what is wrong with it or was expected.
type refusal struct {
	name string
	args []string
	want []string
}

// A call that cannot be done fails with one line and exit code 125, and leaves
// nothing: no container, mount, process, nor network.
func TestRefusals(t *testing.T) {
	ctx := testContext(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken, _ := net.SplitHostPort(l.Addr().String())
	dir := t.TempDir()
	for name, text := range map[string]string{"broken.tar": "not a tar", "empty.tar": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	image := bed.images.layout
	call(ctx, t, "", "run", "--user", "nobody-here", image, "true").says(t, 125, "nobody-here") // unpacks it, and says so
	run := func(flag, value string) []string { return []string{"run", "--rm", flag, value, image, "true"} }
	for _, r := range []refusal{
		{"no image", []string{"run"}, []string{"no image named", "run --help"}},
		{"unknown flag", []string{"run", "--no-such-flag", image}, []string{"no-such-flag", "run --help"}},
		{"name", run("--name", "a/b"), []string{`"a/b"`}},
		{"long name", run("--name", strings.Repeat("x", 300)), []string{"name", "xxx"}},
		{"missing image", []string{"run", dir + "/nosuch.tar", "true"}, []string{"nosuch.tar"}},
		{"broken archive", []string{"run", dir + "/broken.tar", "true"}, []string{"broken.tar"}},
		{"empty archive", []string{"run", dir + "/empty.tar", "true"}, []string{"empty.tar"}},
		{"reference", []string{"run", "No:Such::Image", "true"}, []string{"No:Such::Image"}},
		{"scheme", []string{"run", "oci:" + dir + "/nosuch", "true"}, []string{"nosuch"}},
		{"image that is not here", []string{"run", "--pull", "never", "example.org/nosuch:1", "true"}, []string{"example.org/nosuch:1"}},
		{"pull", run("--pull", "sometimes"), []string{"pull", `"sometimes"`, "missing", "always", "never"}},
		{"volume's form", run("-v", "nocolon"), []string{"volume", `"nocolon"`, "HOST:CONTAINER"}},
		{"volume's source", run("-v", dir+"/nosuch:/x"), []string{"volume", dir + "/nosuch", "no such file"}},
		{"volume's option", run("-v", dir+":/x:rx"), []string{"volume", "rx", "HOST:CONTAINER:ro"}},
		{"volume's place", run("-v", dir+":x"), []string{"volume", `:x"`, "absolute"}},
		{"tmpfs", run("--tmpfs", "x"), []string{"tmpfs", `"x"`, "absolute"}},
		{"port's form", run("-p", "80"), []string{"port", `"80"`, "HOST:CONTAINER"}},
		{"port's number", run("-p", "70000:80"), []string{"port", `"70000:80"`, "HOST:CONTAINER"}},
		{"port's protocol", run("-p", "80:80/sctp"), []string{"port", `"80:80/sctp"`, "tcp", "udp"}},
		{"port without a network", []string{"run", "--network", "none", "-p", "80:80", image}, []string{"80:80/tcp", "network is none"}},
		{"port that is taken, pasta", []string{"run", "--network", "pasta", "-p", "127.0.0.1:" + taken + ":80", image}, []string{"127.0.0.1:" + taken}},
		{"port that is taken, slirp4netns", []string{"run", "--network", "slirp4netns", "-p", "127.0.0.1:" + taken + ":80", image}, []string{"127.0.0.1:" + taken}},
		{"network", run("--network", "nosuch"), []string{"network", `"nosuch"`, "pasta", "slirp4netns", "none"}},
		{"memory", run("--memory", "12q"), []string{"memory", `"12q"`, "512m"}},
		{"no memory", run("--memory", "0"), []string{"memory", `"0"`, "512m"}},
		{"cpus", run("--cpus", "many"), []string{"cpus", `"many"`, "0.01"}},
		{"no cpus", run("--cpus", "0"), []string{"cpus", `"0"`, "0.01"}},
		{"annotation's form", run("--annotation", "x"), []string{"annotation", `"x"`, "KEY=VALUE"}},
		{"annotation's value", run("--annotation", "io.katacontainers.config.hypervisor.default_memory=lots"), []string{"default_memory", "lots"}},
		{"user", run("--user", "nobody-here"), []string{"nobody-here"}},
		{"workdir", run("--workdir", "relative"), []string{`"relative"`, "absolute"}},
		{"terminal", []string{"run", "-it", image, "true"}, []string{"terminal", "standard input"}},
		{"exec in none", []string{"exec", "nosuch", "id"}, []string{"nosuch", "not found"}},
		{"logs of none", []string{"logs", "nosuch"}, []string{"nosuch", "not found"}},
		{"stop of none", []string{"stop", "nosuch"}, []string{"nosuch", "not found"}},
		{"rm of none", []string{"rm", "nosuch"}, []string{"nosuch", "not found"}},
		{"exec without a command in none", []string{"exec", "nosuch"}, []string{"nosuch", "not found"}},
		{"exec without a name", []string{"exec"}, []string{"exec --help"}},
		{"stop's time", []string{"stop", "--time", "soon", "nosuch"}, []string{"soon"}},
	} {
		t.Run(r.name, func(t *testing.T) { r.check(ctx, t) })
	}
	t.Run("configuration", func(t *testing.T) { refuseConfigurations(ctx, t, dir) })
	wantClean(t)
}

func (r refusal) check(ctx context.Context, t *testing.T) {
	t.Helper()
	checkRefusal(t, call(ctx, t, "", r.args...), r.want)
}

func checkRefusal(t *testing.T, got result, want []string) {
	t.Helper()
	if got.code != 125 || got.out != "" || strings.Count(got.errOut, "\n") != 1 {
		t.Errorf("exit code %d, output %q, error %q; want 125, none, and one line", got.code, got.out, got.errOut)
	}
	for _, text := range want {
		if !strings.Contains(got.errOut, text) {
			t.Errorf("%q does not name %q", got.errOut, text)
		}
	}
}

// A configuration that does not exist, or is wrong.
func refuseConfigurations(ctx context.Context, t *testing.T, dir string) {
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"missing.toml", "", []string{"missing.toml"}},
		{"value.toml", "[hypervisor.qemu]\ndefault_vcpus = \"many\"\n", []string{"value.toml", "default_vcpus", "many"}},
		{"kernel.toml", "[hypervisor.qemu]\nkernel = \"/nosuch/vmlinux\"\n", []string{"/nosuch/vmlinux"}},
		{"syntax.toml", "[hypervisor\n", []string{"syntax.toml"}},
	} {
		path := filepath.Join(dir, test.name)
		if test.text != "" {
			if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := command(ctx, "run", "--rm", "--network", "none", bed.images.layout, "true")
		cmd.Env = append(cmd.Env, "KATA_CONF_FILE="+path)
		t.Run(test.name, func(t *testing.T) { checkRefusal(t, finish(t, cmd, ""), test.want) })
	}
}
