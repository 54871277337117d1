package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/api/runtime/sandbox/v1"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"
)

// podConfigType ends the type of CRI's PodSandboxConfig.
const podConfigType = "runtime.v1.PodSandboxConfig"

// hostResolvConf is what a pod without a DNS configuration gets, and hostHosts what each
// container gets, unless the kubelet mounts another file there.
const hostResolvConf, hostHosts = "/etc/resolv.conf", "/etc/hosts"

// podFiles writes to the sandbox's bundle what an engine with a pause container writes
// for a pod's containers (containerd, internal/cri/server/podsandbox,
// setupSandboxFiles): their resolv.conf, whose path it returns, the host name and a copy
// of the host's hosts file. It returns the mounts of these, and of the pod's shared memory,
// which the guest has. A pod that is not CRI's has none. The engine removes the bundle.
func podFiles(r *sandbox.CreateSandboxRequest, hostname string) (mounts []specs.Mount, resolvConf string, err error) {
	if !isPodConfig(r.Options) {
		return nil, "", nil
	}
	if !filepath.IsAbs(r.BundlePath) {
		return nil, "", fmt.Errorf("bundle path %q: want an absolute one: %w", r.BundlePath, errdefs.ErrInvalidArgument)
	}
	dns, err := podDNS(r.Options)
	if err != nil {
		return nil, "", err
	}
	hosts, err := hostFile(hostHosts)
	if err != nil {
		return nil, "", err
	}
	mounts = append(mounts, bindMount("/dev/shm", "/dev/shm"))
	for _, file := range []struct{ target, content string }{{hostResolvConf, dns}, {"/etc/hostname", hostname + "\n"}, {hostHosts, hosts}} {
		path := filepath.Join(r.BundlePath, filepath.Base(file.target))
		if err := writePublic(path, file.content); err != nil {
			return nil, "", fmt.Errorf("write the pod's %s: %w", file.target, err)
		}
		mounts = append(mounts, bindMount(path, file.target))
	}
	return mounts, filepath.Join(r.BundlePath, filepath.Base(hostResolvConf)), nil
}

// writePublic writes a file that all users of containers may read, whatever the umask.
func writePublic(path, content string) error {
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		return err
	}
	return os.Chmod(path, 0o644)
}

func bindMount(source, target string) specs.Mount {
	return specs.Mount{Destination: target, Type: "bind", Source: source, Options: []string{"rbind", "rprivate", "rw"}}
}

// podDNS returns the resolv.conf of CRI's pod configuration: DNSConfig's servers,
// searches and options, or without one the host's.
func podDNS(options *anypb.Any) (string, error) {
	config, ok := bytesField(options.GetValue(), fieldDNS)
	if !ok {
		return hostFile(hostResolvConf)
	}
	var text strings.Builder
	if list := listField(config, fieldSearches); len(list) > 0 {
		text.WriteString("search " + strings.Join(list, " ") + "\n")
	}
	for _, server := range listField(config, fieldServers) {
		text.WriteString("nameserver " + server + "\n")
	}
	if list := listField(config, fieldDNSOptions); len(list) > 0 {
		text.WriteString("options " + strings.Join(list, " ") + "\n")
	}
	return text.String(), nil
}

// hostFile returns the content of a file of the host; "" if it is missing.
func hostFile(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("copy the host's %s: %w", filepath.Base(path), err)
	}
	return string(data), nil
}
