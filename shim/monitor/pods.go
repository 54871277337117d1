package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/management"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/printable"
)

const (
	// askTimeout bounds one request to one pod. The guest has 2 s of it.
	askTimeout = 4 * time.Second
	// maxAnswer bounds an answer, in bytes: a scrape of a pod has some 40 KB.
	maxAnswer = 4 << 20
	// maxAsked bounds how many pods are asked concurrently.
	maxAsked = 32
)

// Pod is a pod of this host whose shim runs.
type Pod struct {
	// ID is the sandbox's, and Owner the engine's address and namespace.
	ID    string
	Owner persist.Owner
	// Dir is the directory of its record, below which is its socket.
	Dir string
	// Shim and VM are the pids of its shim and of QEMU; VM is 0 until QEMU has
	// started.
	Shim, VM int
}

// Pods lists the pods whose records are below root and whose shims live, in the
// order of their ids.
func Pods(root string) ([]Pod, error) {
	records, err := persist.List(root)
	if err != nil {
		return nil, err
	}
	var pods []Pod
	for _, r := range records {
		dir := filepath.Join(root, r.Owner.Name(r.SandboxID))
		if r.Shim.Alive() || listens(dir) {
			pods = append(pods, Pod{ID: r.SandboxID, Owner: r.Owner, Dir: dir, Shim: r.Shim.PID, VM: r.VM.PID})
		}
	}
	slices.SortFunc(pods, func(a, b Pod) int { return strings.Compare(a.ID+a.Dir, b.ID+b.Dir) })
	return pods, nil
}

// listens reports whether a shim accepts connections in dir. In a container, which has
// a PID namespace, no shim is seen as a process. The socket of a dead shim refuses.
func listens(dir string) bool {
	conn, err := net.DialTimeout("unix", filepath.Join(dir, management.SocketName), askTimeout)
	if err != nil {
		return errors.Is(err, unix.EAGAIN) // its queue is full
	}
	_ = conn.Close()
	return true
}

// Find returns the running pod with that id, or the only pod whose id has it as a
// prefix. It fails with errdefs.ErrNotFound if there is none, and with
// errdefs.ErrFailedPrecondition if there are several.
func Find(root, id string) (Pod, error) {
	pods, err := Pods(root)
	if err != nil {
		return Pod{}, err
	}
	exact := slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { return p.ID != id })
	if len(exact) > 0 {
		pods = exact
	}
	pods = slices.DeleteFunc(pods, func(p Pod) bool { return id == "" || !strings.HasPrefix(p.ID, id) })
	switch len(pods) {
	case 0:
		return Pod{}, fmt.Errorf("find sandbox %s: no pod of that id runs: %w", id, errdefs.ErrNotFound)
	case 1:
		return pods[0], nil
	}
	return Pod{}, fmt.Errorf("find sandbox %s: %d pods have ids with this prefix: %w", id, len(pods), errdefs.ErrFailedPrecondition)
}

// Ask sends one request to the pod's shim and returns its answer; any status
// other than 200 is an error. It takes 4 s at most.
func (p Pod) Ask(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := p.request(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask pod %s: %w", p.ID, err)
	}
	return body, nil
}

// dial connects to the shim. A shim makes its socket when its machine has started, and
// removes it before it ends: outside of that time it fails with
// errdefs.ErrUnavailable.
func (p Pod) dial(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(p.Dir, management.SocketName))
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, fmt.Errorf("its shim (process %d) is starting the machine, or is ending; see its lines in the engine's log: %w", p.Shim, errdefs.ErrUnavailable)
	}
	return conn, err
}

// request sends one request with that body.
func (p Pod) request(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return p.dial(ctx)
	}}}
	req, err := http.NewRequestWithContext(ctx, method, "http://pod"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if urlErr := new(url.Error); errors.As(err, &urlErr) {
		return nil, urlErr.Err // the URL names nothing that a reader knows
	}
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", reason(answer), errdefs.ErrNotFound)
	case resp.StatusCode != http.StatusOK:
		return nil, refusal{resp.Status, reason(answer)}
	}
	return answer, nil
}

// refusal is an answer with another status than 200 and 404.
type refusal struct{ status, reason string }

func (r refusal) Error() string { return r.status + ": " + r.reason }

// reason returns an error's text as one line: parts of it may be the guest's, and
// it goes to terminals.
func reason(answer []byte) string { return printable.Line(strings.TrimSpace(string(answer))) }

// Describe asks the pod's shim what runs in the pod.
func (p Pod) Describe(ctx context.Context) (virtcontainers.Description, error) {
	var d virtcontainers.Description
	body, err := p.Ask(ctx, "/sandbox")
	if err == nil {
		err = json.Unmarshal(body, &d)
	}
	if err != nil {
		return d, fmt.Errorf("describe pod %s: %w", p.ID, err)
	}
	return d, nil
}

// Each calls do for each pod, several at a time, and waits for all calls.
func Each(pods []Pod, do func(i int, p Pod)) {
	var all sync.WaitGroup
	slots := make(chan struct{}, maxAsked)
	for i, p := range pods {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			do(i, p)
		})
	}
	all.Wait()
}
