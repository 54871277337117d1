package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/guest"
)

// fakeNetwork records the requests.
type fakeNetwork struct {
	wanted []*api.SetNetworkRequest
	cpus   uint32 // of the last UseQueues
	err    error
}

func (n *fakeNetwork) Apply(_ context.Context, want *api.SetNetworkRequest) ([]string, error) {
	n.wanted = append(n.wanted, want)
	return []string{"eth0 set up"}, n.err
}

func (n *fakeNetwork) UseQueues(cpus uint32) error {
	n.cpus = cpus
	return n.err
}

// networkPod is a pod with a fake network and its own UTS namespace.
func networkPod(t *testing.T) (*Pod, *fakeNetwork) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root for its own UTS namespace")
	}
	pod, _ := testPod(t)
	pod.hostname = ""
	n := &fakeNetwork{}
	pod.network = n
	if err := os.Mkdir(pod.nsPath(""), 0o700); err != nil {
		t.Fatal(err)
	}
	// The namespace exists as long as this thread, which ends with the
	// goroutine.
	unshared, end, ended := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWUTS)
		if err == nil {
			err = os.Symlink(fmt.Sprintf("/proc/self/task/%d/ns/uts", unix.Gettid()), pod.nsPath("uts"))
		}
		unshared <- err
		<-end
	}()
	t.Cleanup(func() { close(end); <-ended })
	if err := <-unshared; err != nil {
		t.Fatal(err)
	}
	return pod, n
}

func TestSetNetwork(t *testing.T) {
	pod, n := networkPod(t)
	client := api.NewGuestClient(dialPod(t, pod))
	before, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []struct {
		hostname string
		changes  []string
		named    bool
	}{
		{"", []string{"eth0 set up"}, false},
		{"pod-1", []string{"eth0 set up", "hostname set to pod-1"}, true},
		{"pod-1", []string{"eth0 set up"}, true},
		{"", []string{"eth0 set up"}, true},
		{"pod-2", []string{"eth0 set up", "hostname set to pod-2"}, true},
	} {
		resp, err := client.SetNetwork(t.Context(), &api.SetNetworkRequest{Hostname: call.hostname})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(call.changes, resp.GetChanges()); diff != "" {
			t.Errorf("%q: %s", call.hostname, diff)
		}
		if at, err := pod.place("c", &api.ContainerConfig{}); err != nil || at.HasHostname != call.named {
			t.Errorf("%q: a container is placed at %+v, %v", call.hostname, at, err)
		}
	}
	if len(n.wanted) != 5 {
		t.Errorf("the network was set %d times", len(n.wanted))
	}
	if after, err := os.Hostname(); err != nil || after != before {
		t.Errorf("the agent's own host name is %q, %v, was %q", after, err, before)
	}
}

// A name that a container has set survives changes of the network, which repeat the
// pod's; the next pod's name, or another one for this pod, is set.
func TestSetNetworkKeepsAContainersHostname(t *testing.T) {
	pod, _ := networkPod(t)
	for _, step := range []struct {
		do      func()
		request string
		want    string
	}{
		{func() {}, "pod-1", "pod-1"},
		{func() { renameHost(t, pod, "mine") }, "pod-1", "mine"},
		{func() {}, "pod-2", "pod-2"},
		{func() { renameHost(t, pod, "mine") }, "pod-1", "pod-1"},
		{func() { renameHost(t, pod, "mine") }, "", "mine"},
		{func() {
			if err := pod.forgetEarlier(); err != nil {
				t.Fatal(err)
			}
		}, "pod-1", "pod-1"},
	} {
		step.do()
		if _, err := pod.setNetwork(t.Context(), &api.SetNetworkRequest{Hostname: step.request}); err != nil {
			t.Fatal(err)
		}
		changed, err := guest.SetHostname(pod.nsPath("uts"), step.want)
		if changed || err != nil {
			t.Errorf("after a request for %q the hostname is not %q, %v", step.request, step.want, err)
		}
	}
}

// renameHost sets the pod's hostname as a privileged container does.
func renameHost(t *testing.T, pod *Pod, name string) {
	t.Helper()
	if _, err := guest.SetHostname(pod.nsPath("uts"), name); err != nil {
		t.Fatal(err)
	}
}

func TestSetNetworkBeforeSetup(t *testing.T) {
	pod, n := networkPod(t)
	pod.stage = bare
	client := api.NewGuestClient(dialPod(t, pod))
	if _, err := client.SetNetwork(t.Context(), &api.SetNetworkRequest{Hostname: "x"}); !errdefs.IsFailedPrecondition(errgrpc.ToNative(err)) {
		t.Error(err)
	}
	if len(n.wanted) != 0 {
		t.Error("the network was set all the same")
	}
}

// A refused network leaves the hostname unchanged.
func TestSetNetworkRefused(t *testing.T) {
	pod, n := networkPod(t)
	n.err = fmt.Errorf("interfaces[0].name: %w", errdefs.ErrInvalidArgument)
	client := api.NewGuestClient(dialPod(t, pod))
	if _, err := client.SetNetwork(t.Context(), &api.SetNetworkRequest{Hostname: "x"}); !errdefs.IsInvalidArgument(errgrpc.ToNative(err)) {
		t.Error(err)
	}
	if pod.hostname != "" {
		t.Error("the pod was named")
	}
	n.err = nil
	if err := os.Remove(pod.nsPath("uts")); err != nil {
		t.Fatal(err)
	}
	if _, err := pod.setNetwork(t.Context(), &api.SetNetworkRequest{Hostname: "x"}); !errors.Is(err, os.ErrNotExist) || pod.hostname != "" {
		t.Errorf("without a namespace: %v", err)
	}
}
