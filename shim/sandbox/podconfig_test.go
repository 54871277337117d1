package sandbox

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// encode encodes one field of bytes.
func encode(num protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), value))
}

func TestPodHostname(t *testing.T) {
	number := string(protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), 7))
	long := strings.Repeat("x", maxHostname)
	for _, tt := range []struct{ name, data, want string }{
		{"nothing", "", ""},
		{"first", encode(2, "web"), "web"},
		{"after others", encode(1, "metadata") + number + encode(2, "web") + encode(3, "/logs"), "web"},
		{"empty", encode(2, ""), ""},
		{"none", encode(1, "metadata") + number, ""},
		{"the longest", encode(2, long), long},
		{"too long", encode(2, long+"x"), ""},
		{"a number", string(protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7)), ""},
		{"cut short", encode(1, "metadata")[:5], ""},
		{"cut short in the name", encode(2, "web")[:3], ""},
		{"not protobuf", "\xff\xff", ""},
	} {
		if got := podHostname(&anypb.Any{Value: []byte(tt.data)}); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if got := podHostname(nil); got != "" {
		t.Errorf("no options: %q", got)
	}
}

func TestHostNetwork(t *testing.T) {
	network := func(value uint64) string {
		option := string(protowire.AppendVarint(protowire.AppendTag(nil, fieldNetwork, protowire.VarintType), value))
		return encode(1, "metadata") + encode(fieldLinux, encode(1, "/cgroup")+encode(fieldSecurityContext, encode(fieldNamespaceOptions, option)))
	}
	for _, tt := range []struct {
		name, data string
		want       bool
	}{
		{"nothing", "", false},
		{"the node's", network(networkNode), true},
		{"the pod's", network(0), false},
		{"no options", encode(fieldLinux, encode(fieldSecurityContext, "")), false},
		{"cut short", network(networkNode)[:20], false},
	} {
		if got := hostNetwork(&anypb.Any{Value: []byte(tt.data)}); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func FuzzPodConfig(f *testing.F) {
	f.Add([]byte(encode(1, "metadata") + encode(2, "web")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := podHostname(&anypb.Any{Value: data}); len(got) > maxHostname {
			t.Errorf("%d bytes", len(got))
		}
		hostNetwork(&anypb.Any{Value: data})
	})
}
