package sandbox

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// What is read of CRI's PodSandboxConfig, by the field numbers of its
// api.proto: a whole API for two values would be much. Options of another kind
// have neither.
const (
	fieldHostname = 2
	fieldLinux    = 8
	// LinuxPodSandboxConfig.security_context, its namespace_options, and
	// NamespaceOption.network with the value for the node's.
	fieldSecurityContext, fieldNamespaceOptions, fieldNetwork = 2, 1, 1
	networkNode                                               = 2
)

// maxHostname is Linux's bound (uts_namespaces(7)).
const maxHostname = 64

// podHostname finds the host name in CRI's pod configuration; empty if it has
// none.
func podHostname(options *anypb.Any) string {
	name, _ := bytesField(options.GetValue(), fieldHostname)
	if len(name) > maxHostname {
		return ""
	}
	return string(name)
}

// hostNetwork tells whether CRI's pod configuration asks for the host's
// network.
func hostNetwork(options *anypb.Any) bool {
	data := options.GetValue()
	for _, num := range []protowire.Number{fieldLinux, fieldSecurityContext, fieldNamespaceOptions} {
		data, _ = bytesField(data, num)
	}
	value, n := field(data, fieldNetwork, protowire.VarintType)
	if n < 0 {
		return false
	}
	network, n := protowire.ConsumeVarint(value)
	return n >= 0 && network == networkNode
}

// bytesField finds a string, bytes or message field.
func bytesField(data []byte, num protowire.Number) ([]byte, bool) {
	value, n := field(data, num, protowire.BytesType)
	if n < 0 {
		return nil, false
	}
	content, n := protowire.ConsumeBytes(value)
	return content, n >= 0
}

// field finds the first field of that number and type: the encoded value and
// its length, or a negative length.
func field(data []byte, want protowire.Number, kind protowire.Type) ([]byte, int) {
	for len(data) > 0 {
		num, k, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, -1
		}
		data = data[n:]
		n = protowire.ConsumeFieldValue(num, k, data)
		if n < 0 {
			return nil, -1
		}
		if num == want && k == kind {
			return data[:n], n
		}
		data = data[n:]
	}
	return nil, -1
}
