package k8s

import (
	"testing"

	"github.com/katabox/katabox/tests/ginkgo"
)

// known is the list of cases of Kubernetes' own suite that pass with runc and that
// a virtual machine cannot pass. docs/compat.md repeats it. What is only not
// implemented yet must not be in it.
var known = []ginkgo.Exception{
	{Name: "[sig-node] KubeletManagedEtcHosts should test kubelet managed /etc/hosts file [NodeConformance] [Conformance]",
		Why: "one of its pods has `hostNetwork`: the guest has its own network stack, and such a pod is refused"},
	{Name: "[sig-network] Networking Granular Checks: Pods should function for node-pod communication: http [LinuxOnly] [NodeConformance] [Conformance]",
		Why: "as above"},
	{Name: "[sig-network] Networking Granular Checks: Pods should function for node-pod communication: udp [LinuxOnly] [NodeConformance] [Conformance]",
		Why: "as above"},
	{Name: "[sig-node] Downward API should provide host IP and pod IP as an env var if pod uses host network [LinuxOnly] [NodeConformance]",
		Why: "as above"},
	{Name: "[sig-node] Kubelet with pods in a privileged namespace when scheduling an agnhost Pod with hostAliases and hostNetwork should write entries to /etc/hosts when hostNetwork is enabled [NodeConformance]",
		Why: "as above"},
	{Name: "[sig-node] Container Runtime blackbox test when running a container with a new image [Serial] should be able to pull image [NodeConformance]",
		Why: "the suite's registry, which it pulls from, is a pod with `hostNetwork`"},
	{Name: "[sig-node] Container Runtime blackbox test when running a container with a new image [Serial] should not be able to pull from private registry without secret [NodeConformance]",
		Why: "as above"},
	{Name: "[sig-node] Container Runtime blackbox test when running a container with a new image [Serial] should be able to pull from private registry with secret [NodeConformance]",
		Why: "as above"},
	{Name: "[sig-node] Container Runtime blackbox test when running a container with a new image [Serial] should not be able to pull image from invalid registry [NodeConformance]",
		Why: "as above"},
}

// docs/compat.md has the same list, between its two marks.
func TestCompatPageListsWhatIsKnown(t *testing.T) {
	if err := bed.layout.CheckCompatPage("conformance", ginkgo.Table(known)); err != nil {
		t.Error(err)
	}
}
