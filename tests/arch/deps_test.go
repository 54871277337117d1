package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// listed is a package in go list's output.
type listed struct {
	ImportPath string
	// Deps is everything that is linked with it, directly or not.
	Deps []string
}

// list runs go list for every package. A package that does not build is listed
// with the dependencies found so far: another test checks that it compiles.
func list(t *testing.T) []listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-tags", buildTag, "-json=ImportPath,Deps", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.Bytes())
	}
	var all []listed
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var one listed
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("read go list's answer: %v", err)
		}
		all = append(all, one)
	}
}

// TestNothingForeignIsLinked checks whole programs: what a package must not
// import must not be linked through its imports either.
func TestNothingForeignIsLinked(t *testing.T) {
	packages := list(t)
	if len(packages) == 0 {
		t.Fatal("go list names no package")
	}
	for _, one := range packages {
		folder, ok := inModule(one.ImportPath)
		if !ok {
			t.Errorf("%s is not of this module", one.ImportPath)
			continue
		}
		for _, dep := range one.Deps {
			if why := linkViolation(folder, dep); why != "" {
				t.Errorf("%s links %s: %s", folder, dep, why)
				break // one of a module's packages brings many others
			}
		}
	}
}

// linkViolation returns why a folder's packages may not be linked with a
// package; "" if they may.
func linkViolation(folder, dep string) string {
	for from, modules := range foreign {
		if within(folder, from) && withinAny(dep, modules) {
			return from + " must do without it"
		}
	}
	to, ours := inModule(dep)
	if !ours || !within(folder, "agent") && !within(folder, "hypervisor") {
		return ""
	}
	return layerViolation(folder, to)
}

// Every program that make builds is built with the tag that list assumes.
func TestBuildTag(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	programs := 0
	for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
		if !strings.Contains(line, "$(GO) build") || !strings.Contains(line, "-o bin/") {
			continue
		}
		programs++
		if !strings.Contains(line, buildTag) {
			t.Errorf("the Makefile builds without -tags %s: %s", buildTag, line)
		}
	}
	if programs < 2 {
		t.Errorf("the Makefile has %d rules that build programs, want the shim's and the agent's", programs)
	}
}

func TestLinkRules(t *testing.T) {
	tests := []struct {
		folder, dep string
		allowed     bool
	}{
		{"shim/task", "github.com/opencontainers/runc/libcontainer/utils", false},
		{"agent/container", "github.com/opencontainers/runc/libcontainer", true},
		{"agent/service", module + "/virtcontainers", false},
		{"agent/service", module + "/agent/container", true},
		{"agent/cmd/kata-agent", "github.com/digitalocean/go-qemu/qmp", false},
		{"agent/cmd/kata-agent", "net/http", false},
		{"shim/cmd/containerd-shim-kata-v2", "crypto/tls", false},
		{"shim/cmd/kata-runtime", "crypto/tls", true},
		{"hypervisor/qemu", module + "/agent/api", false},
		{"hypervisor/qemu", "github.com/digitalocean/go-qemu/qmp", true},
		{"hypervisor/vsock", "github.com/vishvananda/netlink", false},
		{"shim/task", module + "/agent/api", true},
		{"tests/harness", "github.com/opencontainers/runc/libcontainer", true},
	}
	for _, test := range tests {
		if why := linkViolation(test.folder, test.dep); (why == "") != test.allowed {
			t.Errorf("%s links %s: %q, want allowed %v", test.folder, test.dep, why, test.allowed)
		}
	}
}

// A build of a program records git's commit unless told not to, and fails in a
// checkout that belongs to another user. (Tests, "go run" and "go list" record none.)
func TestBuildsAskNoGit(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	check := func(path, text, command string) {
		for _, after := range strings.Split(text, command)[1:] {
			if line, _, _ := strings.Cut(after, "\n"); !strings.Contains(line, "buildvcs=false") {
				t.Errorf("%s: no -buildvcs=false in %s%s", path, command, line)
			}
		}
	}
	check("Makefile", strings.ReplaceAll(string(text), "\\\n", " "), "$(GO) build")
	for _, s := range sources(t) {
		text, err := os.ReadFile(filepath.Join(root, s.path))
		if err != nil {
			t.Fatal(err)
		}
		check(s.path, string(text), `"build", `+`"-`)
	}
}
