package sandbox

import (
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers/config"
)

// encode encodes one field of bytes.
func encode(num protowire.Number, value string) string {
	return string(protowire.AppendString(protowire.AppendTag(nil, num, protowire.BytesType), value))
}

// podConfig makes CRI's pod configuration of encoded fields.
func podConfig(data string) *anypb.Any {
	return &anypb.Any{TypeUrl: podConfigType, Value: []byte(data)}
}

func TestPodHostname(t *testing.T) {
	number := string(protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.VarintType), 7))
	long := strings.Repeat("x", maxHostname)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, data, want string }{
		{"nothing", "", host},
		{"first", encode(2, "web"), "web"},
		{"after others", encode(1, "metadata") + number + encode(2, "web") + encode(3, "/logs"), "web"},
		{"empty", encode(2, ""), host},
		{"none", encode(1, "metadata") + number, host},
		{"the longest", encode(2, long), long},
		{"a number", string(protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 7)), host},
		{"cut short", encode(1, "metadata")[:5], host},
		{"cut short in the name", encode(2, "web")[:3], host},
		{"not protobuf", "\xff\xff", host},
	} {
		if got, err := podHostname(podConfig(tt.data)); err != nil || got != tt.want {
			t.Errorf("%s: %q, %v, want %q", tt.name, got, err, tt.want)
		}
	}
	for name, options := range map[string]*anypb.Any{
		"no options": nil, "options of another type": {TypeUrl: "runtimeoptions.v1.Options", Value: []byte(encode(2, "/configuration.toml"))},
	} {
		if got, err := podHostname(options); err != nil || got != host {
			t.Errorf("%s: %q, %v, want %q", name, got, err, host)
		}
	}
	_, err = podHostname(podConfig(encode(2, long+"y")))
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), long+"y") {
		t.Errorf("too long: error %v", err)
	}
}

func TestHostNamespaces(t *testing.T) {
	asks := func(kind protowire.Number, value uint64) string {
		option := string(protowire.AppendVarint(protowire.AppendTag(nil, kind, protowire.VarintType), value))
		return encode(1, "metadata") + encode(fieldLinux, encode(1, "/cgroup")+encode(fieldSecurityContext, encode(fieldNamespaceOptions, option)))
	}
	strict, loose := &config.Config{}, &config.Config{}
	loose.Runtime.AllowHostNamespaces = true
	for _, tt := range []struct {
		name, data       string
		refused, allowed string // words of the error, without the key and with it
	}{
		{"nothing", "", "", ""},
		{"the node's network", asks(fieldNetwork, namespaceNode), "network", "network"},
		{"the node's processes", asks(fieldPID, namespaceNode), "hostPID", ""},
		{"the node's IPC", asks(fieldIPC, namespaceNode), "hostIPC", ""},
		{"the pod's network", asks(fieldNetwork, 0), "", ""},
		{"its own processes", asks(fieldPID, 1), "", ""},
		{"another's processes", asks(fieldPID, 3), "", ""},
		{"no options", encode(fieldLinux, encode(fieldSecurityContext, "")), "", ""},
		{"cut short", asks(fieldNetwork, namespaceNode)[:20], "", ""},
	} {
		for cfg, want := range map[*config.Config]string{strict: tt.refused, loose: tt.allowed} {
			err := checkNamespaces(&anypb.Any{Value: []byte(tt.data)}, cfg)
			if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tt.name, err, want)
			}
		}
	}
}

// encodeNumber encodes one field of an integer.
func encodeNumber(num protowire.Number, value int64) string {
	return string(protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), uint64(value)))
}

func TestPodCgroup(t *testing.T) {
	for _, tt := range []struct{ parent, want string }{
		{"", ""},
		{"/kubepods/burstable/pod1", "/kubepods/burstable/pod1/box"},
		{"/kubepods.slice/kubepods-pod1.slice", "kubepods-pod1.slice:cri-containerd:box"},
		{"kubepods-pod1.slice", "kubepods-pod1.slice:cri-containerd:box"},
		{strings.Repeat("x", maxCgroup+1), ""},
	} {
		if got := podCgroup(&anypb.Any{Value: []byte(encode(fieldLinux, encode(1, tt.parent)))}, "box"); got != tt.want {
			t.Errorf("%.40q: %q, want %q", tt.parent, got, tt.want)
		}
	}
}

func TestPodResources(t *testing.T) {
	if got := podResources(&anypb.Any{Value: []byte(encode(fieldLinux, encode(1, "/parent")))}); got != nil {
		t.Errorf("no resources: %v", got)
	}
	resources := encodeNumber(1, 100_000) + encodeNumber(2, 150_000) + encodeNumber(3, 512) + encodeNumber(4, 64<<20)
	got := podResources(&anypb.Any{Value: []byte(encode(fieldLinux, encode(5, resources)))})
	if *got.CPU.Quota != 150_000 || *got.CPU.Period != 100_000 || *got.CPU.Shares != 512 || *got.Memory.Limit != 64<<20 {
		t.Errorf("limits: %+v, %+v", got.CPU, got.Memory)
	}
	got = podResources(&anypb.Any{Value: []byte(encode(fieldLinux, encode(5, encodeNumber(2, -1))))})
	if *got.CPU.Quota != -1 || *got.Memory.Limit != 0 {
		t.Errorf("no limits: %+v, %+v", got.CPU, got.Memory)
	}
}

// A pod has the sysctls that containerd adds to a pause container's spec, unless it has
// other values.
func TestPodSysctls(t *testing.T) {
	const port, ping = "net.ipv4.ip_unprivileged_port_start", "net.ipv4.ping_group_range"
	sysctl := func(name, value string) string {
		return encode(fieldSysctls, encode(fieldKey, name)+encode(fieldValue, value))
	}
	userNamespace := func(mode int64) string {
		return encode(fieldSecurityContext, encode(fieldNamespaceOptions, encode(fieldUser, encodeNumber(fieldMode, mode))))
	}
	for name, test := range map[string]struct {
		linux string
		want  map[string]string
	}{
		"none":                        {"", map[string]string{port: "0", ping: "0 2147483647"}},
		"another":                     {sysctl("net.core.somaxconn", "7"), map[string]string{port: "0", ping: "0 2147483647", "net.core.somaxconn": "7"}},
		"other values":                {sysctl(port, "80") + sysctl(ping, "1 0"), map[string]string{port: "80", ping: "1 0"}},
		"the node's users":            {userNamespace(namespaceNode), map[string]string{port: "0", ping: "0 2147483647"}},
		"a user namespace":            {userNamespace(namespacePod), map[string]string{port: "0"}},
		"a user namespace and a ping": {userNamespace(namespacePod) + sysctl(ping, "0 1"), map[string]string{port: "0", ping: "0 1"}},
	} {
		if got := podSysctls(podConfig(encode(fieldLinux, test.linux))); !maps.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
	if got := podSysctls(nil); len(got) > 0 {
		t.Errorf("a sandbox that is not CRI's: %v", got)
	}
}

func FuzzPodConfig(f *testing.F) {
	f.Add([]byte(encode(1, "metadata") + encode(2, "web")))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, err := podHostname(podConfig(string(data))); len(got) > maxHostname || (got == "") != (err != nil) {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		hostNamespace(&anypb.Any{Value: data}, fieldPID)
		podCgroup(&anypb.Any{Value: data}, "box")
		podResources(&anypb.Any{Value: data})
		podSysctls(podConfig(string(data)))
	})
}
