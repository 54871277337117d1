package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

var kubeletConfigPath = filepath.Join(Dir, "kubelet.yaml")

// kubeletConfig has two kinds of settings: what this host needs (cgroup v1,
// files below Dir), and shorter periods, so that updates of volumes arrive
// within a test.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: %[1]s
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
oomScoreAdj: 0
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
volumePluginDir: %[2]s/plugins
podLogsDir: %[2]s/pods
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
imageGCHighThresholdPercent: 100
runtimeRequestTimeout: 10m
syncFrequency: 5s
volumeStatsAggPeriod: 5s
nodeStatusUpdateFrequency: 5s
`

func (n *Node) writeKubeletConfig() error {
	return writeFiles(map[string]string{kubeletConfigPath: fmt.Sprintf(kubeletConfig, n.options.Cgroup, Dir)})
}

// SetKubelet restarts the kubelet with further lines of its configuration; with none,
// as it was at first. Its managers start over: they refuse the state that another
// policy has left.
func (n *Node) SetKubelet(ctx context.Context, more string) error {
	text := fmt.Sprintf(kubeletConfig, n.options.Cgroup, Dir) + more
	if err := writeFiles(map[string]string{kubeletConfigPath: text}); err != nil {
		return fmt.Errorf("configure the kubelet: %w", err)
	}
	if err := n.Down(ctx, Kubelet); err != nil {
		return err
	}
	for _, state := range []string{"cpu_manager_state", "memory_manager_state"} {
		if err := os.Remove(filepath.Join("/var/lib/kubelet", state)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("configure the kubelet: %w", err)
		}
	}
	return n.Up(ctx, Kubelet)
}

func (n *Node) kubelet() *service {
	return n.newService(Kubelet, answers("http://127.0.0.1:10248/healthz"),
		"--config="+kubeletConfigPath, "--kubeconfig="+kubeconfigPath, "--cert-dir="+Dir,
		"--hostname-override="+Name, "--node-ip="+nodeIP, "--v=2")
}
