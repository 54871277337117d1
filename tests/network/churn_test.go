package network

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// Pods of the churn test.
const (
	churnPods  = 10
	churnBatch = 5
	// hostPort is the host port of the first pod.
	hostPort = 18000
)

// Pods with addresses behind NAT and with host ports are made and removed, some
// concurrently: nothing of them is left.
func TestChurn(t *testing.T) {
	ctx, d := begin(t)
	n := newCNI(t, d, object{"type": "bridge", "isGateway": true, "hairpinMode": true, "ipMasq": true},
		object{"type": "portmap", "capabilities": object{"portMappings": true}})
	n.useBridge(t)
	// Five machines boot simultaneously on two CPUs without KVM, beside other
	// work.
	configure(t, d, "[runtime]\ncreate_container_timeout = 300\n")
	t.Cleanup(func() { // the chains that portmap makes once for all pods
		for _, iptables := range []string{"iptables", "ip6tables"} {
			netns("").do(t, fmt.Sprintf("%[1]s -t nat -F; %[1]s -t nat -X", iptables))
		}
	})
	firstPort(t, d, n)
	for first := 0; first < churnPods; first += churnBatch {
		var batch sync.WaitGroup
		for i := first; i < first+churnBatch; i++ {
			batch.Go(func() {
				if err := churnOne(ctx, d, n, i); err != nil {
					t.Errorf("pod %d: %v", i, err)
				}
			})
		}
		batch.Wait()
		if err := d.Settled(ctx); err != nil {
			t.Fatal(err)
		}
		if leases, err := n.leases(); err != nil || len(leases) > 0 {
			t.Fatalf("leases left: %v, error %v", leases, err)
		}
		rules, err := firewallRules()
		if err != nil {
			t.Fatal(err)
		}
		// Each rule for one pod has the network's name in its comment.
		if left := slices.DeleteFunc(rules, func(r string) bool { return !strings.Contains(r, n.name) }); len(left) > 0 {
			t.Fatalf("firewall rules left: %q", left)
		}
	}
}

// firstPort has portmap make the chains that all pods share. Plugins that make them at
// the same time fail (iptables: "CHAIN_USER_ADD failed (File exists)").
func firstPort(t *testing.T, d *harness.Daemon, n *cni) {
	t.Helper()
	made, err := d.NewNetns()
	if err != nil {
		t.Fatal(err)
	}
	l, err := n.add(netns(made), "eth0", object{"portMappings": []object{{"hostPort": hostPort, "containerPort": port, "protocol": "tcp"}}})
	if err == nil {
		err = l.del()
	}
	if err := errors.Join(err, made.Remove()); err != nil {
		t.Fatal(err)
	}
}

// churnOne makes a pod, connects to it from the host by its host port, and
// removes it as an engine does: first the network, then the pod.
func churnOne(ctx context.Context, d *harness.Daemon, n *cni, i int) (err error) {
	made, err := d.NewNetns()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, made.Remove()) }()
	ns := netns(made)
	ports := []object{{"hostPort": hostPort + i, "containerPort": port, "protocol": "tcp"}}
	l, err := n.add(ns, "eth0", object{"portMappings": ports})
	if err != nil {
		return err
	}
	p, err := d.NewPod(ctx, fmt.Sprint("churn", i), inNetns(ns))
	if err != nil {
		return errors.Join(err, l.del())
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, l.del(), p.Remove(ctx))
	}()
	box, err := p.Add(ctx, probeConfig(servers...))
	if err != nil {
		return err
	}
	if err := box.Start(ctx); err != nil {
		return err
	}
	if err := box.Out.Await(ctx, "ready"); err != nil {
		return err
	}
	_, err = netns("").run(probePath(), "check", fmt.Sprintf("tcp://%s:%d?bytes=100000", n.gateway4, hostPort+i),
		fmt.Sprintf("tcp://%s:%d?bytes=100000", l.addr4, port))
	return err
}
