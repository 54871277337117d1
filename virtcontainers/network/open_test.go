package network

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	file, fifo := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "fifo")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, unix.Mkfifo(fifo, 0o600))
	_, err := statIdentity("/proc/1/ns/net")
	unreadable := err != nil // a sandbox may hide the init's namespace
	for name, tt := range map[string]struct {
		opts Options
		kind func(error) bool
		want string
	}{
		"the host's":         {Options{Namespace: "/proc/1/ns/net"}, errdefs.IsInvalidArgument, "host network requested"},
		"this process's":     {Options{Namespace: "/proc/self/ns/net"}, errdefs.IsInvalidArgument, "not supported: a VM has its own network"},
		"gone":               {Options{Namespace: "/run/netns/nobody-made-this"}, errdefs.IsNotFound, "/run/netns/nobody-made-this"},
		"a plain file":       {Options{Namespace: file}, errdefs.IsInvalidArgument, "it is not a namespace"},
		"a FIFO":             {Options{Namespace: fifo}, errdefs.IsInvalidArgument, "it is not a namespace"},
		"another kind":       {Options{Namespace: "/proc/self/ns/mnt"}, errdefs.IsInvalidArgument, "of another kind"},
		"model":              {Options{Model: "bridge"}, errdefs.IsInvalidArgument, `model "bridge": want tcfilter, macvtap or none`},
		"queues":             {Options{Queues: 257}, errdefs.IsInvalidArgument, "257 queue pairs: want 1 to 256"},
		"low rate":           {Options{RxRate: 100}, errdefs.IsInvalidArgument, "receive rate of 100 bit/s"},
		"high rate":          {Options{TxRate: 1e16}, errdefs.IsInvalidArgument, "8192 to 1000000000000000"},
		"none's send":        {Options{Model: None, TxRate: 1e6}, errdefs.IsInvalidArgument, "send rate with model none"},
		"too many of queues": {Options{Queues: -1}, errdefs.IsInvalidArgument, "-1 queue pairs"},
	} {
		if name == "the host's" && unreadable {
			t.Logf("not tested: %s namespace cannot be looked at", name)
			continue
		}
		n, err := Open(tt.opts)
		if err == nil {
			n.Close(t.Context())
		}
		if err == nil || !tt.kind(err) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	if _, err := Open(Options{Namespace: "/run/netns/nobody-made-this"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that is gone: %v, want also fs.ErrNotExist", err)
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	n := p.open(t, Options{})
	must(t, n.Close(t.Context()))
	must(t, n.Close(t.Context()))
	if err := n.Plug(t.Context(), newMachine(t)); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Plug after Close: %v", err)
	}
	if err := n.Watch(t.Context(), func() error { return nil }); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("Watch after Close: %v", err)
	}
}

func TestNamespaceIsNotPinned(t *testing.T) {
	t.Parallel()
	before := descriptors(t)
	p := newPod(t)
	opened := descriptors(t)
	n, vm := p.open(t, Options{Queues: 2}), newMachine(t)
	must(t, n.Plug(t.Context(), vm))
	must(t, n.Close(t.Context()))
	vm.end()
	id := identity{Dev: p.ns.id.Dev, Inode: p.ns.id.Inode}
	if n := descriptors(t)[id]; n != opened[id] {
		t.Errorf("%d descriptors of the namespace are open, want %d (before: %d)", n, opened[id], before[id])
	}
}

// descriptors counts this process's open namespaces.
func descriptors(t *testing.T) map[identity]int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	counts := make(map[identity]int)
	for _, e := range entries {
		if id, err := statIdentity("/proc/self/fd/" + e.Name()); err == nil {
			id.Cookie = 0
			counts[id]++
		}
	}
	return counts
}

func statIdentity(path string) (identity, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return identity{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return identity{Dev: st.Dev, Inode: st.Ino}, nil
}

// A name in another encoding cannot be told to the guest.
func TestNameThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	p := newPod(t)
	p.veth(t, "\xe9th1", "10.3.0.2/24")
	n, vm := p.open(t, Options{}), newMachine(t)
	err := n.Plug(t.Context(), vm)
	if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), `"\xe9th1"`) {
		t.Errorf("Plug: %v", err)
	}
	if _, err := proto.Marshal(n.State()); err != nil || !cmp.Equal(interfaces(n), []string{"eth0"}) {
		t.Errorf("the guest has %q: %v", interfaces(n), err)
	}
	// One that the guest has already.
	eth0 := linkOf(t, p.ns, "eth0")
	must(t, p.ns.LinkSetDown(eth0))
	must(t, p.ns.LinkSetName(eth0, "eth\xe9"))
	must(t, p.ns.LinkSetUp(eth0))
	if err := n.Plug(t.Context(), vm); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Plug: %v", err)
	}
	if got := interfaces(n); !cmp.Equal(got, []string{"eth?"}) {
		t.Errorf("the guest has %q", got)
	}
}
