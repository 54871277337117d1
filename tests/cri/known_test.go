package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// exception is a case of the suite that passes with runc and that a virtual
// machine cannot pass. docs/compat.md lists the same.
type exception struct {
	// name is the whole name, containers and case.
	name string
	why  string
}

// known is the list. What is only not implemented yet must not be in it.
var known = []exception{
	{"[k8s.io] Security Context NamespaceOption runtime should support HostIpc is true",
		"the guest cannot see the host's System V segments"},
	{"[k8s.io] Security Context NamespaceOption runtime should support HostPID",
		"the guest cannot see the host's processes; such a pod is refused, or sees only its own with `allow_host_namespaces = true`"},
	{"[k8s.io] Security Context NamespaceOption runtime should support HostNetwork is true",
		"the guest has its own network stack, without the host's sockets; such a pod is refused"},
	{"[k8s.io] Streaming runtime should support streaming interfaces runtime should support portforward in host network",
		"as above: a server of the guest does not listen on the host's addresses"},
	{"[k8s.io] Container Mount Propagation runtime should support mount propagation mount with 'rshared' should support propagation from host to container and vice versa",
		"a mount made in a container exists only in the guest; propagation from the host to the container works, and the case with 'rslave' passes"},
}

// docs/compat.md has the same list, between its two marks.
func TestCompatPageListsWhatIsKnown(t *testing.T) {
	const page = "docs/compat.md"
	data, err := os.ReadFile(filepath.Join(bed.layout.Root, page))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), "<!-- critest: begin -->\n")
	got, _, end := strings.Cut(rest, "<!-- critest: end -->")
	if !ok || !end {
		t.Fatalf("%s lacks its marks", page)
	}
	if want := knownTable(); got != want {
		t.Errorf("%s differs from the list in the test; between the marks it should say:\n%s", page, want)
	}
}

// knownTable returns the list in the page's format.
func knownTable() string {
	var b strings.Builder
	b.WriteString("| case | why a virtual machine cannot |\n| --- | --- |\n")
	for _, k := range known {
		fmt.Fprintf(&b, "| %s | %s |\n", k.name, k.why)
	}
	return b.String()
}
