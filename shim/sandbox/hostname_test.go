package sandbox

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// field encodes one field of bytes.
func field(num protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), value))
}

func TestPodHostname(t *testing.T) {
	number := string(protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), 7))
	long := strings.Repeat("x", maxHostname)
	for _, tt := range []struct{ name, data, want string }{
		{"nothing", "", ""},
		{"first", field(2, "web"), "web"},
		{"after others", field(1, "metadata") + number + field(2, "web") + field(3, "/logs"), "web"},
		{"empty", field(2, ""), ""},
		{"none", field(1, "metadata") + number, ""},
		{"the longest", field(2, long), long},
		{"too long", field(2, long+"x"), ""},
		{"a number", string(protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7)), ""},
		{"cut short", field(1, "metadata")[:5], ""},
		{"cut short in the name", field(2, "web")[:3], ""},
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

func FuzzPodHostname(f *testing.F) {
	f.Add([]byte(field(1, "metadata") + field(2, "web")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got := podHostname(&anypb.Any{Value: data}); len(got) > maxHostname {
			t.Errorf("%d bytes", len(got))
		}
	})
}
