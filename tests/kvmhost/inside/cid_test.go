package inside

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/tests/harness"
)

// claimants is how many processes claim a context id simultaneously: as many as
// the pods that a node starts when it boots. The machine has no room for that
// many pods.
const claimants = 50

// envClaim makes this program one of them.
const envClaim = "KATABOX_TEST_CLAIM"

// claim waits for a line, opens a transport as the shim does, prints its
// context id, and holds it until the input ends.
func claim(in io.Reader, out io.Writer) int {
	lines := bufio.NewReader(in)
	if _, err := lines.ReadString('\n'); err != nil {
		return 1
	}
	transport, err := vsock.Open(context.Background(), vsock.Options{})
	if err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	holder := &holder{}
	if err := transport.Attach(context.Background(), holder); err != nil {
		fmt.Fprintln(out, err)
		return 1
	}
	fmt.Fprintln(out, transport.Kind(), holder.cid)
	_, _ = io.Copy(io.Discard, lines)
	return 0
}

// holder stands for the VMM: it keeps a duplicate of the file, as QEMU does.
type holder struct {
	cid uint32
	fd  int
}

// Attach implements hypervisor.Attacher.
func (h *holder) Attach(_ context.Context, device hypervisor.Device) (err error) {
	v, ok := device.(hypervisor.VhostVsock)
	if !ok {
		return fmt.Errorf("device is a %T, want the kernel's vsock", device)
	}
	h.cid = v.CID
	h.fd, err = unix.FcntlInt(v.File.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return err
}

// claimant is a started process.
type claimant struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startClaimant(ctx context.Context) (*claimant, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), envClaim+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &claimant{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

// Processes that claim simultaneously get distinct context ids.
func TestProcessesClaimCIDs(t *testing.T) {
	// Not the test's context, which ends before its clean-ups.
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	var all []*claimant
	for range claimants {
		c, err := startClaimant(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = c.in.Close() // already closed if the test passed
			if err := c.cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
		all = append(all, c)
	}
	for _, c := range all { // all are running and waiting
		if _, err := io.WriteString(c.in, "claim\n"); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for _, c := range all {
		line, err := c.out.ReadString('\n')
		kind, cid, ok := strings.Cut(strings.TrimSpace(line), " ")
		if err != nil || !ok || kind != vsock.KindVhost {
			t.Errorf("a process says %q, %v; want %s and a context id", line, err, vsock.KindVhost)
		}
		if seen[cid] {
			t.Errorf("two processes have context id %s", cid)
		}
		seen[cid] = true
	}
	t.Logf("%d processes have %d context ids", len(all), len(seen))
}

// podsAtOnce is how many pods start simultaneously: one for each CPU of the
// bed's machine. In five rounds of four pods, one guest reset in its first
// second and one hung; with fewer pods neither was seen. The cause is the
// translator's SVM.
const podsAtOnce = 2

// agentPort is where a guest's agent listens (agent/api).
const agentPort = "1024"

// vsockPeer is the other end of an established connection in "ss --vsock -n":
// v_str ESTAB 0 0 2:PORT CID:PORT.
var vsockPeer = regexp.MustCompile(`ESTAB +\d+ +\d+ +\S+ +(\d+):(\d+)`)

// Pods that start simultaneously have distinct context ids.
func TestPodsClaimCIDs(t *testing.T) {
	ctx, d := begin(t)
	pods := make([]*harness.Pod, podsAtOnce)
	errs := make([]error, podsAtOnce)
	var all sync.WaitGroup
	for i := range pods {
		all.Go(func() { pods[i], errs[i] = d.NewPod(ctx, fmt.Sprint("cid", i)) })
	}
	all.Wait()
	for _, p := range pods {
		if p != nil {
			t.Cleanup(func() { removed(t, "pod", p.Remove) })
		}
	}
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	cids := agentCIDs(t)
	if len(cids) != podsAtOnce {
		t.Errorf("the shims are connected to agents on context ids %v, want %d", cids, podsAtOnce)
	}
}

// agentCIDs returns the context ids of the guests to whose agents this host is
// connected.
func agentCIDs(t *testing.T) map[string]bool {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "ss", "--vsock", "-n")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("list vsock connections: %v: %s", err, out)
	}
	cids := map[string]bool{}
	for _, m := range vsockPeer.FindAllStringSubmatch(string(out), -1) {
		if m[2] == agentPort {
			cids[m[1]] = true
		}
	}
	if len(cids) == 0 {
		t.Logf("ss says:\n%s", out)
	}
	return cids
}
