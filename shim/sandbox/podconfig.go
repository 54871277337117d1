package sandbox

import (
	"fmt"
	"iter"
	"maps"
	"os"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/katabox/katabox/virtcontainers/bundle"
)

// The parts of CRI's PodSandboxConfig that are read, by the field numbers of its
// api.proto: importing the whole API for a few values would be too much. Options
// of another type have none of them.
const (
	fieldMetadata    = 1
	fieldHostname    = 2
	fieldDNS         = 4
	fieldAnnotations = 7
	fieldLinux       = 8
	// LinuxPodSandboxConfig.cgroup_parent, .sysctls and .resources: the sum of the
	// pod's containers' resources.
	fieldCgroupParent, fieldSysctls, fieldResources = 1, 3, 5
	// DNSConfig.
	fieldServers, fieldSearches, fieldDNSOptions = 1, 2, 3
	// An entry of a map.
	fieldKey, fieldValue = 1, 2
	// LinuxContainerResources.
	fieldCPUPeriod, fieldCPUQuota, fieldCPUShares, fieldMemoryLimit = 1, 2, 3, 4
	// LinuxPodSandboxConfig.security_context and its namespace_options.
	fieldSecurityContext, fieldNamespaceOptions = 2, 1
	// NamespaceOption's fields, UserNamespace.mode, and the values that mean the pod's
	// and the node's namespace.
	fieldNetwork, fieldPID, fieldIPC, fieldUser = 1, 2, 3, 5
	fieldMode                                   = 1
	namespacePod, namespaceNode                 = 0, 2
	// PodSandboxMetadata.
	fieldName, fieldUID, fieldNamespace = 1, 2, 3
)

// isPodConfig reports whether the options are CRI's pod configuration.
func isPodConfig(options *anypb.Any) bool {
	return strings.HasSuffix(options.GetTypeUrl(), podConfigType)
}

// maxHostname is Linux's bound (uts_namespaces(7)).
const maxHostname = 64

// podHostname returns the host name in CRI's pod configuration. If it has none, it
// returns the host's, as a new UTS namespace starts as a copy (uts_namespaces(7)). It
// fails with errdefs.ErrInvalidArgument for a name that Linux does not take.
func podHostname(options *anypb.Any) (string, error) {
	var name []byte
	if isPodConfig(options) {
		name, _ = bytesField(options.GetValue(), fieldHostname)
	}
	switch {
	case len(name) > maxHostname:
		return "", fmt.Errorf("hostname %.100q has %d bytes, more than %d: %w", name, len(name), maxHostname, errdefs.ErrInvalidArgument)
	case len(name) > 0:
		return string(name), nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find hostname: %w", err)
	}
	return host, nil
}

// podName returns the pod's name in Kubernetes.
func podName(options *anypb.Any) bundle.PodName {
	metadata, _ := bytesField(options.GetValue(), fieldMetadata)
	part := func(field protowire.Number) string {
		value, _ := bytesField(metadata, field)
		return string(value)
	}
	return bundle.PodName{Name: part(fieldName), UID: part(fieldUID), Namespace: part(fieldNamespace)}
}

// maxCgroup is longer than any path that the kernel takes (PATH_MAX).
const maxCgroup = 4096

// podCgroup returns the cgroup that a pause container would have, in the form in
// which containerd's CRI plugin names it: in systemd's form when the pod's parent
// is a slice (internal/cri/server/podsandbox, getCgroupsPath). It is empty if the
// pod has no parent.
func podCgroup(options *anypb.Any, id string) string {
	linux, _ := bytesField(options.GetValue(), fieldLinux)
	parent, _ := bytesField(linux, fieldCgroupParent)
	switch base := path.Base(string(parent)); {
	case len(parent) == 0 || len(parent) > maxCgroup:
		return ""
	case strings.HasSuffix(base, ".slice"):
		return strings.Join([]string{base, "cri-containerd", id}, ":")
	}
	return path.Join(string(parent), id)
}

// podResources returns the resources that the pod's containers may use together, or
// nil.
func podResources(options *anypb.Any) *specs.LinuxResources {
	linux, _ := bytesField(options.GetValue(), fieldLinux)
	resources, ok := bytesField(linux, fieldResources)
	if !ok {
		return nil
	}
	quota := int64(numberField(resources, fieldCPUQuota))
	period := numberField(resources, fieldCPUPeriod)
	shares := numberField(resources, fieldCPUShares)
	limit := int64(numberField(resources, fieldMemoryLimit))
	return &specs.LinuxResources{
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period, Shares: &shares},
		Memory: &specs.LinuxMemory{Limit: &limit},
	}
}

// podSysctls returns the sysctls that the spec of CRI's pause container would have: those
// of the pod's configuration, and those that containerd 2 adds by default
// (internal/cri/server/podsandbox, sandboxContainerSpec; enable_unprivileged_ports and
// enable_unprivileged_icmp): without them, users other than root cannot bind low ports or ping.
// The shim is not told whether they were turned off.
func podSysctls(options *anypb.Any) map[string]string {
	linux, _ := bytesField(options.GetValue(), fieldLinux)
	sysctls := mapField(linux, fieldSysctls)
	if !isPodConfig(options) {
		return sysctls
	}
	defaults := map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"}
	if !userNamespace(options) {
		defaults["net.ipv4.ping_group_range"] = "0 2147483647"
	}
	maps.Copy(defaults, sysctls)
	return defaults
}

// podAnnotations returns the annotations in the pod's configuration: all that the pod
// has.
func podAnnotations(options *anypb.Any) map[string]string {
	return mapField(options.GetValue(), fieldAnnotations)
}

// numberField returns an integer field, or 0 if it is missing.
func numberField(data []byte, num protowire.Number) uint64 {
	value, n := field(data, num, protowire.VarintType)
	if n < 0 {
		return 0
	}
	number, n := protowire.ConsumeVarint(value)
	if n < 0 {
		return 0
	}
	return number
}

// hostNamespace reports whether CRI's pod configuration asks for the host's
// namespace of a kind: one of NamespaceOption's fields.
func hostNamespace(options *anypb.Any, kind protowire.Number) bool {
	return numberField(namespaceOptions(options), kind) == namespaceNode
}

// userNamespace reports whether CRI's pod configuration asks for a user namespace.
func userNamespace(options *anypb.Any) bool {
	user, ok := bytesField(namespaceOptions(options), fieldUser)
	return ok && numberField(user, fieldMode) == namespacePod
}

// namespaceOptions returns the encoded NamespaceOption of CRI's pod configuration.
func namespaceOptions(options *anypb.Any) []byte {
	data := options.GetValue()
	for _, num := range []protowire.Number{fieldLinux, fieldSecurityContext, fieldNamespaceOptions} {
		data, _ = bytesField(data, num)
	}
	return data
}

// bytesField returns a string, bytes or message field.
func bytesField(data []byte, num protowire.Number) ([]byte, bool) {
	value, n := field(data, num, protowire.BytesType)
	if n < 0 {
		return nil, false
	}
	content, n := protowire.ConsumeBytes(value)
	return content, n >= 0
}

// listField returns a field of type repeated string.
func listField(data []byte, num protowire.Number) (list []string) {
	for value := range fields(data, num, protowire.BytesType) {
		if content, n := protowire.ConsumeBytes(value); n >= 0 {
			list = append(list, string(content))
		}
	}
	return list
}

// mapField returns a field of type map<string, string>.
func mapField(data []byte, num protowire.Number) map[string]string {
	entries := make(map[string]string)
	for value := range fields(data, num, protowire.BytesType) {
		entry, n := protowire.ConsumeBytes(value)
		if n < 0 {
			break
		}
		key, _ := bytesField(entry, fieldKey)
		content, _ := bytesField(entry, fieldValue)
		entries[string(key)] = string(content)
	}
	return entries
}

// field finds the first field with that number and type. It returns the encoded
// value and its length, or a negative length.
func field(data []byte, want protowire.Number, kind protowire.Type) ([]byte, int) {
	for value := range fields(data, want, kind) {
		return value, len(value)
	}
	return nil, -1
}

// fields iterates over the encoded values of the fields with that number and type, up
// to what is malformed.
func fields(data []byte, want protowire.Number, kind protowire.Type) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(data) > 0 {
			num, k, n := protowire.ConsumeTag(data)
			if n < 0 {
				return
			}
			data = data[n:]
			n = protowire.ConsumeFieldValue(num, k, data)
			if n < 0 || num == want && k == kind && !yield(data[:n]) {
				return
			}
			data = data[n:]
		}
	}
}
