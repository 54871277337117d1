package manager

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/types"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestParseArgs(t *testing.T) {
	cwd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want Params
		err  string
	}{
		{
			name: "containerd start",
			args: []string{"-namespace", "k8s.io", "-address", "/run/c.sock", "-publish-binary", "/bin/c", "-id", "c1", "start"},
			env:  map[string]string{"TTRPC_ADDRESS": "/run/t.sock", "MAX_SHIM_VERSION": "2"},
			want: Params{Action: "start", ID: "c1", Namespace: "k8s.io", Bundle: cwd, GRPCAddress: "/run/c.sock",
				EventAddress: "/run/t.sock", Dialect: DialectJSON},
		},
		{
			name: "containerd 1.6 delete",
			args: []string{"-namespace", "default", "-address", "/run/c.sock", "-publish-binary", "/bin/c", "-id", "c1", "-bundle", "/b", "-debug", "delete"},
			want: Params{Action: "delete", ID: "c1", Namespace: "default", Bundle: "/b", GRPCAddress: "/run/c.sock", Debug: true},
		},
		{
			name: "CRI-O 1.34 start",
			args: []string{"-namespace", "default", "-address", "", "-publish-binary", "/usr/bin/crio", "-id", "c1", "start"},
			env:  map[string]string{"MAX_SHIM_VERSION": "2", "TTRPC_ADDRESS": "", "GRPC_ADDRESS": ""},
			want: Params{Action: "start", ID: "c1", Namespace: "default", Bundle: cwd},
		},
		{
			name: "iSulad start",
			args: []string{"--id", "c1", "--namespace", "isula", "start"},
			want: Params{Action: "start", ID: "c1", Namespace: "isula", Bundle: cwd},
		},
		{name: "daemon", args: []string{"-namespace", "n", "-id", "c1"}, want: Params{ID: "c1", Namespace: "n", Bundle: cwd}},
		{name: "version", args: []string{"-v"}, want: Params{Version: true}},
		{name: "version in full", args: []string{"--version"}, want: Params{Version: true}},
		{name: "info", args: []string{"-info"}, want: Params{Info: true}},
		{name: "unknown action", args: []string{"-namespace", "n", "-id", "c1", "stop"}, err: `unknown action "stop"`},
		{name: "two actions", args: []string{"-namespace", "n", "-id", "c1", "start", "delete"}, err: `unexpected argument "delete"`},
		{name: "unknown flag", args: []string{"-what"}, err: "-what"},
		{name: "no namespace", args: []string{"-id", "c1", "start"}, err: "-namespace is missing"},
		{name: "no id", args: []string{"-namespace", "n", "start"}, err: "-id: "},
		{name: "id with a slash", args: []string{"-namespace", "n", "-id", "a/../b", "start"}, err: `"a/../b"`},
		{name: "help", args: []string{"-h"}, err: flag.ErrHelp.Error()},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseArgs(tt.args, func(key string) string { return tt.env[key] })
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got error %v, want %s", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&tt.want, got, cmpopts.IgnoreUnexported(Params{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The daemon reads from its flags what start was told.
func TestFlagsForDaemon(t *testing.T) {
	none := func(string) string { return "" }
	p, err := ParseArgs([]string{"-namespace", "n", "-id", "c1", "-address", "/a", "-publish-binary", "/p", "-debug", "-bundle", "/b", "start"}, none)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseArgs(p.flagsForDaemon, none)
	if err != nil {
		t.Fatal(err)
	}
	if d.Action != ActionServe || d.ID != "c1" || d.Namespace != "n" || d.GRPCAddress != "/a" || !d.Debug {
		t.Errorf("the daemon reads %+v", d)
	}
}

func encode(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func runtimeOptions(t testing.TB) []byte {
	t.Helper()
	options, err := anypb.New(&runtimeoptions.Options{ConfigPath: "/etc/x.toml"})
	if err != nil {
		t.Fatal(err)
	}
	return encode(t, options)
}

// What the caller sends determines the dialect.
func TestDialect(t *testing.T) {
	socketDir := "/run/sockets"
	boot := &bootapi.BootstrapParams{InstanceID: "c1", SocketDir: &socketDir, ContainerdTtrpcAddress: "/run/t.sock"}
	tests := []struct {
		name  string
		env   string
		stdin []byte
		want  Params
	}{
		{"nothing", "", nil, Params{Dialect: DialectPlain}},
		{"version in the environment", "3", nil, Params{Dialect: DialectJSON}},
		{"bootstrap parameters", "3", encode(t, boot), Params{Dialect: DialectProto, SocketDir: socketDir, EventAddress: "/run/t.sock"}},
		{"bootstrap parameters without addresses", "", encode(t, &bootapi.BootstrapParams{InstanceID: "c1"}),
			Params{Dialect: DialectProto, EventAddress: "/env.sock"}},
		{"another container's", "3", encode(t, &bootapi.BootstrapParams{InstanceID: "c2"}), Params{Dialect: DialectJSON}},
		{"runtime options", "", runtimeOptions(t), Params{Dialect: DialectPlain}},
		{"runtime options and a version", "2", runtimeOptions(t), Params{Dialect: DialectJSON}},
		{"garbage", "", []byte("\xff\xff\xff"), Params{Dialect: DialectPlain}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			env := map[string]string{"MAX_SHIM_VERSION": tt.env, "TTRPC_ADDRESS": "/env.sock"}
			p, err := ParseArgs([]string{"-namespace", "n", "-id", "c1", "-bundle", "/b", "start"}, func(key string) string { return env[key] })
			if err != nil {
				t.Fatal(err)
			}
			if err := p.ReadStdin(bytes.NewReader(tt.stdin)); err != nil {
				t.Fatal(err)
			}
			want := tt.want
			if want.EventAddress == "" {
				want.EventAddress = "/env.sock"
			}
			got := Params{Dialect: p.Dialect, SocketDir: p.SocketDir, EventAddress: p.EventAddress}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Params{})); diff != "" {
				t.Error(diff)
			}
		})
	}
	for want, stdin := range map[string][]byte{"/etc/x.toml": runtimeOptions(t), "": []byte("\xff")} {
		p := &Params{ID: "c1"}
		if err := p.ReadStdin(bytes.NewReader(stdin)); err != nil || p.configPath != want {
			t.Errorf("the configuration file is %q, %v; want %q", p.configPath, err, want)
		}
	}
	if err := new(Params).ReadStdin(iotest.ErrReader(errInjected)); !errors.Is(err, errInjected) {
		t.Errorf("a stdin that cannot be read: %v", err)
	}
}

func TestAnswers(t *testing.T) {
	const address = "unix:///run/x.sock"
	capabilities := &types.MountCapabilities{Types: []string{"a"}, Transforms: []string{"b"}}
	bundle := "/run/containerd/io.containerd.runtime.v2.task/k8s.io/c1"
	answer := func(d Dialect) string {
		t.Helper()
		var out bytes.Buffer
		if err := writeAnswer(&out, d, answerVersion(&Params{Dialect: d, Bundle: bundle}), address, capabilities); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	// iSulad takes every byte as part of the address: no newline.
	if got := answer(DialectPlain); got != address {
		t.Errorf("plain: %q", got)
	}
	checkJSON := func(version float64) {
		t.Helper()
		var fields map[string]any
		if err := json.Unmarshal([]byte(answer(DialectJSON)), &fields); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(map[string]any{"version": version, "address": address, "protocol": "ttrpc"}, fields); diff != "" {
			t.Error(diff)
		}
	}
	checkJSON(2)
	bundle = "/run/containerd/io.containerd.sandbox.controller.v1.shim/k8s.io/pod" // containerd 2.x, for its sandbox API
	checkJSON(3)
	bundle = "/b"
	var result bootapi.BootstrapResult
	if err := proto.Unmarshal([]byte(answer(DialectProto)), &result); err != nil {
		t.Error(err)
	}
	var mounts types.MountCapabilities
	if ok, err := result.FindExtension(&mounts); !ok || err != nil || !proto.Equal(&mounts, capabilities) {
		t.Errorf("protobuf: mounts %v, %v", &mounts, err)
	}
	if result.Version != 3 || result.Address != address || result.Protocol != "ttrpc" {
		t.Errorf("protobuf: %v", &result)
	}
	if err := writeAnswer(brokenWriter{}, DialectPlain, apiVersion, address, nil); !errors.Is(err, errInjected) {
		t.Errorf("got %v", err)
	}
}

// brokenWriter fails every write.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errInjected }

func TestInfo(t *testing.T) {
	var out bytes.Buffer
	if err := Info("1.2.3", &out); err != nil {
		t.Fatal(err)
	}
	var info types.RuntimeInfo
	if err := proto.Unmarshal(out.Bytes(), &info); err != nil {
		t.Fatal(err)
	}
	if info.Name != RuntimeName || info.Version.GetVersion() != "1.2.3" || !json.Valid(info.Features.GetValue()) {
		t.Errorf("got %v", &info)
	}
	if err := Info("1", brokenWriter{}); !errors.Is(err, errInjected) {
		t.Errorf("got %v", err)
	}
	if err := Features(brokenWriter{}); !errors.Is(err, errInjected) {
		t.Errorf("got %v", err)
	}
}

// Any input on stdin changes only the fields that it may change.
func FuzzReadStdin(f *testing.F) {
	socketDir := "/run"
	f.Add(encode(f, &bootapi.BootstrapParams{InstanceID: "c1", SocketDir: &socketDir}))
	f.Add(runtimeOptions(f))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p := &Params{Action: ActionStart, ID: "c1", Namespace: "n", Bundle: "/b"}
		if err := p.ReadStdin(bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if p.Dialect == DialectPlain && (p.SocketDir != "" || p.EventAddress != "") {
			t.Errorf("addresses were taken from what is no bootstrap: %+v", p)
		}
		if p.ID != "c1" || p.Action != ActionStart || p.Namespace != "n" || p.Bundle != "/b" {
			t.Errorf("changed to %+v", p)
		}
		if _, err := encodeAnswer(p.Dialect, answerVersion(p), socketAddress(p), new(types.MountCapabilities)); err != nil && !strings.Contains(err.Error(), "UTF-8") {
			t.Error(err)
		}
	})
}
