package sandbox

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// hostnameField is the number of PodSandboxConfig.hostname in CRI's
// api.proto.
const hostnameField = 2

// podHostname finds the host name in CRI's pod configuration, which is all
// that is read of it: a whole API for one string would be much. Options of
// another kind give none.
func podHostname(options *anypb.Any) string {
	data := options.GetValue()
	for len(data) > 0 {
		num, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return ""
		}
		data = data[n:]
		if num == hostnameField && kind == protowire.BytesType {
			if name, n := protowire.ConsumeString(data); n >= 0 && len(name) <= maxHostname {
				return name
			}
			return ""
		}
		if n = protowire.ConsumeFieldValue(num, kind, data); n < 0 {
			return ""
		}
		data = data[n:]
	}
	return ""
}

// maxHostname is Linux's bound (uts_namespaces(7)).
const maxHostname = 64
