package cri

import (
	"testing"

	"github.com/katabox/katabox/tests/ginkgo"
)

// known is the list of cases that a virtual machine cannot pass, which docs/compat.md
// repeats. What is only not implemented yet must not be in it.
var known = []ginkgo.Exception{
	{Name: "[k8s.io] Security Context NamespaceOption runtime should support HostIpc is true",
		Why: "the guest cannot see the host's System V segments"},
	{Name: "[k8s.io] Security Context NamespaceOption runtime should support HostPID",
		Why: "the guest cannot see the host's processes; such a pod is refused, or sees only its own with `allow_host_namespaces = true`"},
	{Name: "[k8s.io] Security Context NamespaceOption runtime should support HostNetwork is true",
		Why: "the guest has its own network stack, without the host's sockets; such a pod is refused"},
	{Name: "[k8s.io] Streaming runtime should support streaming interfaces runtime should support portforward in host network",
		Why: "as above: a server of the guest does not listen on the host's addresses"},
	{Name: "[k8s.io] Container Mount Propagation runtime should support mount propagation mount with 'rshared' should support propagation from host to container and vice versa",
		Why: "a mount made in a container exists only in the guest; propagation from the host to the container works, and the case with 'rslave' passes"},
}

// docs/compat.md has the same list, between its two marks.
func TestCompatPageListsWhatIsKnown(t *testing.T) {
	if err := bed.layout.CheckCompatPage("critest", ginkgo.Table(known)); err != nil {
		t.Error(err)
	}
}
