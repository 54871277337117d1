package arch

import (
	"strings"
	"testing"
)

const module = "github.com/katabox/katabox"

// layers says for each folder which folders of this module its packages may
// import. The first that matches a package counts; a folder without an entry is
// an error.
var layers = []struct {
	folder string
	may    []string
}{
	{"agent/api", []string{"agent/api"}},
	{"agent", []string{"agent", "internal"}},
	{"internal", []string{"internal"}},
	{"hypervisor", []string{"hypervisor", "internal"}},
	{"virtcontainers/guestfs", []string{
		"virtcontainers/guestfs", "virtcontainers/bundle", "virtcontainers/config", "virtcontainers/guest", "virtcontainers/guestspec",
		"virtcontainers/reverse", "virtcontainers/standin", "hypervisor", "agent/api", "internal",
	}},
	{"virtcontainers/sizing", []string{
		"virtcontainers/sizing", "virtcontainers/config", "hypervisor", "agent/api", "internal",
	}},
	{"virtcontainers/podnet", []string{
		"virtcontainers/podnet", "virtcontainers/config", "virtcontainers/forward", "virtcontainers/guest", "virtcontainers/netns",
		"virtcontainers/network", "virtcontainers/reverse", "hypervisor", "agent/api", "internal",
	}},
	{"virtcontainers", []string{"virtcontainers", "hypervisor", "agent/api", "internal"}},
	{"shim/cmd", []string{"shim", "virtcontainers", "hypervisor", "standalone", "installer"}},
	{"shim", []string{"shim", "virtcontainers", "internal/ownthread"}},
	{"standalone", []string{
		"standalone", "shim/client", "shim/shimtest", "virtcontainers/bundle", "virtcontainers/persist", "virtcontainers/netns", "internal/ownthread",
	}},
	{"installer", []string{"installer"}},
	{"deploy", []string{"deploy"}},
	{"guest-image", []string{"guest-image", "agent/api"}},
	{"tests", []string{""}},
}

// rooms has the folders with private packages below them, which no other
// package imports, and which of these are public nevertheless.
var rooms = map[string][]string{
	"virtcontainers/guestfs": {"virtcontainers/guestfs/volume/direct"},
	"virtcontainers/sizing":  {"virtcontainers/sizing/hostcgroup"},
}

// owners has, for third-party modules, the only folders that may import them.
var owners = map[string][]string{
	"github.com/opencontainers/runc":  {"agent/container", "agent/rootfs", "agent/cmd/kata-agent"},
	"github.com/digitalocean/go-qemu": {"hypervisor/qemu/qmp"},
	"github.com/hanwen/go-fuse":       {"hypervisor/virtiofs", "tests/chaos"},
	"github.com/vishvananda/netlink":  {"virtcontainers/network", "agent/network", "tests"},
	// A shim writes its own metrics (adr/0040).
	"github.com/prometheus/client_golang": {"shim/monitor", "tests"},
	// A shim leaves sending its traces to kata-runtime (adr/0046).
	"go.opentelemetry.io": {"shim/tracing/export", "tests"},
	// Only kata-runtime fetches images, never a shim.
	"github.com/google/go-containerregistry": {"standalone/image", "deploy/image", "tests"},
}

// heavy is what would cost each pod memory on the host and in its guest without
// being used. It comes with gRPC, which containerd's API imports unless
// buildTag is set.
var heavy = []string{"google.golang.org/grpc/internal/transport", "net/http", "crypto/tls", "html/template"}

// buildTag is what the Makefile builds the programs with.
const buildTag = "no_grpc"

// foreign has what must not be imported even indirectly, through other modules:
// it would be linked into the binary.
var foreign = map[string][]string{
	"shim":                             {"github.com/opencontainers/runc"},
	"virtcontainers":                   {"github.com/opencontainers/runc"},
	"shim/cmd/kata-runtime":            {module + "/shim/shimtest"},
	"shim/cmd/containerd-shim-kata-v2": append([]string{"github.com/google/go-containerregistry"}, heavy...),
	"agent/cmd/kata-agent":             heavy,
	"hypervisor":                       {"github.com/opencontainers/runc", "github.com/vishvananda/netlink"},
	"agent":                            {"github.com/digitalocean/go-qemu"},
}

// violation returns why the package in the folder from may not import a path;
// "" if it may.
func violation(from, path string) string {
	if folder, ours := inModule(path); ours {
		return layerViolation(from, folder)
	}
	for prefix, folders := range owners {
		if within(path, prefix) && !withinAny(from, folders) {
			return "only " + strings.Join(folders, ", ") + " may"
		}
	}
	return ""
}

func layerViolation(from, to string) string {
	for room, open := range rooms {
		if to != room && within(to, room) && !within(from, room) && !withinAny(to, open) {
			return "it belongs to " + room
		}
	}
	for _, layer := range layers {
		if !within(from, layer.folder) {
			continue
		}
		if withinAny(to, layer.may) {
			return ""
		}
		return layer.folder + " may import of this module only " + strings.Join(layer.may, ", ")
	}
	return "the folder is in no layer: add it to tests/arch and .golangci.yml"
}

// inModule returns the folder of a package of this module.
func inModule(path string) (folder string, ok bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

// within reports whether path is the tree prefix or in it; every path is within
// the tree "".
func within(path, prefix string) bool {
	return prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

func withinAny(path string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if within(path, prefix) {
			return true
		}
	}
	return false
}

func TestRules(t *testing.T) {
	tests := []struct {
		from, path string
		allowed    bool
	}{
		{"shim/task", module + "/virtcontainers", true},
		{"shim/task", module + "/hypervisor", false},
		{"shim/task", module + "/agent/api", false},
		{"shim/manager", module + "/internal/ownthread", true},
		{"shim/manager", module + "/internal/intime", false},
		{"shim/cmd/containerd-shim-kata-v2", module + "/hypervisor/qemu", true},
		{"shim/cmd/containerd-shim-kata-v2", module + "/agent/service", false},
		{"virtcontainers", module + "/hypervisor/vsock", true},
		{"virtcontainers/guest", module + "/agent/api", true},
		{"virtcontainers/guest", module + "/agent/apiary", false},
		{"virtcontainers", module + "/agent/service", false},
		{"virtcontainers", module + "/virtcontainers/guestfs", true},
		{"virtcontainers", module + "/virtcontainers/guestfs/storage", false},
		{"shim/cmd/kata-runtime", module + "/virtcontainers/guestfs/volume/direct", true},
		{"shim/cmd/kata-runtime", module + "/virtcontainers/guestfs/volume", false},
		{"virtcontainers/guestfs", module + "/virtcontainers/guestfs/volume", true},
		{"virtcontainers/guestfs/volume", module + "/virtcontainers/guestfs/filesync", true},
		{"virtcontainers/guestfs", module + "/virtcontainers", false},
		{"virtcontainers/guestfs", module + "/virtcontainers/persist", false},
		{"virtcontainers/sizing", module + "/virtcontainers/sizing/hostcgroup", true},
		{"virtcontainers/sizing", module + "/virtcontainers/persist", false},
		{"virtcontainers", module + "/virtcontainers/sizing/hostcgroup", true},
		{"virtcontainers/podnet", module + "/virtcontainers/network", true},
		{"virtcontainers/podnet", module + "/virtcontainers/sizing", false},
		{"virtcontainers", module + "/virtcontainers/sizing/resource", false},
		{"virtcontainers", module + "/shim/task", false},
		{"agent/service", module + "/agent/container", true},
		{"agent/service", module + "/virtcontainers", false},
		{"agent/forward", module + "/internal/relay", true},
		{"internal/relay", module + "/agent/api", false},
		{"agent/service", module + "/hypervisor", false},
		{"agent/api", module + "/agent/guest", false},
		{"hypervisor/qemu", module + "/hypervisor", true},
		{"hypervisor/vsock", module + "/agent/api", false},
		{"hypervisor", module + "/virtcontainers/config", false},
		{"guest-image", module + "/guest-image/internal/deb", true},
		{"guest-image", module + "/virtcontainers", false},
		{"tests/harness", module + "/virtcontainers", true},
		{"tests/harness", module + "/shim/task", true},
		{"attic", module + "/hypervisor", false},
		{"shim/cmd/kata-runtime", module + "/standalone/command", true},
		{"shim/client", module + "/standalone/store", false},
		{"standalone/container", module + "/shim/client", true},
		{"standalone/container", module + "/shim/task", false},
		{"standalone/store", module + "/internal/ownthread", true},
		{"standalone/image", "github.com/google/go-containerregistry/pkg/name", true},
		{"standalone/store", "github.com/google/go-containerregistry/pkg/name", false},
		{"shim/monitor", "github.com/prometheus/client_golang/prometheus", true},
		{"shim/management", "github.com/prometheus/client_golang/prometheus", false},
		{"shim/tracing/export", "go.opentelemetry.io/proto/otlp/trace/v1", true},
		{"shim/tracing", "go.opentelemetry.io/proto/otlp/trace/v1", false},
		{"virtcontainers", module, false},
		{"agent/container", "github.com/opencontainers/runc/libcontainer", true},
		{"agent/cmd/kata-agent", "github.com/opencontainers/runc/libcontainer/nsenter", true},
		{"agent/service", "github.com/opencontainers/runc/libcontainer", false},
		{"virtcontainers", "github.com/opencontainers/runc", false},
		{"virtcontainers", "github.com/opencontainers/runtime-spec/specs-go", true},
		{"hypervisor/qemu/qmp", "github.com/digitalocean/go-qemu/qmp", true},
		{"hypervisor/qemu", "github.com/digitalocean/go-qemu/qmp", false},
		{"agent/network", "github.com/vishvananda/netlink", true},
		{"agent/guest", "github.com/vishvananda/netlink", false},
		{"shim/task", "github.com/vishvananda/netlink/nl", false},
		{"shim/task", "os", true},
	}
	for _, test := range tests {
		if why := violation(test.from, test.path); (why == "") != test.allowed {
			t.Errorf("%s imports %s: %q, want allowed %v", test.from, test.path, why, test.allowed)
		}
	}
}
