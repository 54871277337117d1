package node

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/katabox/katabox/tests/cri/images"
)

// containerdConfig is a node's configuration before Katabox is installed.
const containerdConfig = `version = 3
imports = ["/etc/containerd/conf.d/*.toml"]
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "%[1]s"
[plugins.'io.containerd.cri.v1.images'.registry]
  config_path = "/etc/containerd/certs.d"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["/usr/lib/cni"]
  conf_dir = "%[2]s/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd]
  default_runtime_name = "runc"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
`

// network is the pods' network. The bridge has the node's address, and exists
// before the first pod.
const network = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
{"type": "bridge", "bridge": "%s", "isGateway": true, "hairpinMode": true, "ipam": {"type": "host-local",
"ranges": [[{"subnet": "%s", "gateway": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
{"type": "portmap", "capabilities": {"portMappings": true}}]}`

func (n *Node) writeContainerdConfig() error {
	host := n.options.Registry
	return writeFiles(map[string]string{
		"/etc/containerd/config.toml":                 fmt.Sprintf(containerdConfig, images.Pause, Dir),
		"/etc/containerd/certs.d/_default/hosts.toml": fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", host, host),
		Dir + "/cni/10-pods.conflist":                 fmt.Sprintf(network, bridge, podSubnet, nodeIP),
	})
}

func (n *Node) containerd() *service {
	return &service{
		name: Containerd, logPath: n.LogPath(Containerd),
		command: func() *exec.Cmd {
			cmd := exec.Command(filepath.Join(programsDir, Containerd))
			cmd.Env = environment
			return cmd
		},
		probe: func(ctx context.Context) error { return run(exec.CommandContext(ctx, "ctr", "version")) },
	}
}

// environment is that of the node's services.
var environment = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS=1",
}

// run runs a command; the error has its output.
func run(cmd *exec.Cmd) error {
	if cmd.Env == nil {
		cmd.Env = environment
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(cmd.Args, " "), err, out)
	}
	return nil
}
