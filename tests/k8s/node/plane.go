package node

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
)

// The cluster's addresses. Pods have those of podSubnet; serviceIP is that of
// the service "kubernetes", in which pods find the API.
const (
	nodeIP        = "10.177.0.1"
	podSubnet     = "10.177.0.0/24"
	serviceSubnet = "10.178.0.0/24"
	serviceIP     = "10.178.0.1"
	apiPort       = "6443"
	etcdURL       = "http://127.0.0.1:2379"
)

// newService makes a service of one of Kubernetes' programs.
func (n *Node) newService(name string, probe func(context.Context) error, args ...string) *service {
	return &service{
		name: name, logPath: n.LogPath(name), probe: probe,
		command: func() *exec.Cmd { return exec.Command(n.tool(name), args...) },
	}
}

func (n *Node) etcd() *service {
	return n.newService(Etcd, answers(etcdURL+"/health"),
		"--data-dir", filepath.Join(Dir, "etcd"),
		"--listen-client-urls", etcdURL, "--advertise-client-urls", etcdURL,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync")
}

func (n *Node) apiServer() *service {
	return n.newService(APIServer, n.apiReady,
		"--etcd-servers="+etcdURL,
		"--advertise-address="+nodeIP, "--bind-address=0.0.0.0", "--secure-port="+apiPort,
		"--cert-dir="+Dir, "--service-cluster-ip-range="+serviceSubnet,
		"--tls-cert-file="+certPath, "--tls-private-key-file="+keyPath,
		"--kubelet-preferred-address-types=InternalIP", "--authorization-mode=RBAC", "--token-auth-file="+tokensPath, "--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+keyPath, "--service-account-signing-key-file="+keyPath)
}

func (n *Node) controller() *service {
	return n.newService(Controller, answers("https://127.0.0.1:10257/healthz"),
		"--kubeconfig="+kubeconfigPath, "--leader-elect=false", "--cert-dir="+Dir,
		"--root-ca-file="+certPath, "--service-account-private-key-file="+keyPath)
}

func (n *Node) scheduler() *service {
	return n.newService(Scheduler, answers("https://127.0.0.1:10259/healthz"),
		"--kubeconfig="+kubeconfigPath, "--leader-elect=false", "--cert-dir="+Dir)
}

// apiReady reports whether the API answers, with its namespaces.
func (n *Node) apiReady(ctx context.Context) error {
	for _, args := range [][]string{{"get", "--raw", "/readyz"}, {"get", "namespace", "default"}} {
		if r := n.Kubectl(ctx, "", args...); r.Code != 0 {
			return errors.New(r.Errors)
		}
	}
	return nil
}

// forwardService makes the API reachable at its service's address, as kube-proxy
// would.
func forwardService() error {
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		cmd := exec.Command("iptables", "-t", "nat", "-A", chain, "-d", serviceIP, "-p", "tcp", "--dport", "443",
			"-j", "DNAT", "--to-destination", nodeIP+":"+apiPort)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
		}
	}
	return nil
}
