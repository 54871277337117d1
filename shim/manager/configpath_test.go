package manager

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bootapi "github.com/containerd/containerd/api/runtime/bootstrap/v1"
	"github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/shim/shimtest/files"
)

// A pod of the sandbox API has the configuration file that the engine names: with
// "start", because CreateSandbox has the pod's options in place of the runtime's.
func TestSandboxHasTheEnginesFile(t *testing.T) {
	host := newHost(t)
	asDaemon(t, host.RunDir)
	file := filepath.Join(t.TempDir(), "named.toml")
	if err := os.WriteFile(file, []byte("[agent.kata]\ndial_timeout = \"soon\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	options := &runtimeoptions.Options{ConfigPath: file}
	packed, err := anypb.New(options)
	if err != nil {
		t.Fatal(err)
	}
	boot := &bootapi.BootstrapParams{InstanceID: "boot"}
	if err := boot.AddExtension(options); err != nil {
		t.Fatal(err)
	}
	for id, stdin := range map[string]io.Reader{
		"options": bytes.NewReader(encode(t, packed)), "boot": bytes.NewReader(encode(t, boot)), "none": strings.NewReader(""),
	} {
		p := newParams(t, host.RunDir, id, nil)
		if err := os.Remove(filepath.Join(p.Bundle, "config.json")); err != nil { // as with the sandbox API
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := Start(p, stdin, &out); err != nil {
			t.Fatal(err)
		}
		pid := files.ShimPID(t, p.Bundle)
		_, err := sandbox.NewTTRPCSandboxClient(dial(t, socketAddress(p))).CreateSandbox(t.Context(), &sandbox.CreateSandboxRequest{SandboxID: id})
		if named := err != nil && strings.Contains(err.Error(), file); named != (id != "none") {
			t.Errorf("%s: %v", id, err)
		}
		killChild(t, pid)
		if err := removeSocket(socketAddress(p)); err != nil {
			t.Error(err)
		}
	}
}
