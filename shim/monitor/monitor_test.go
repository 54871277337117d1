package monitor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"go.uber.org/goleak"

	"github.com/katabox/katabox/shim/management"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/bundle"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/prom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is a sandbox that reports its name. If asleep is set, it hibernates while
// that is true; otherwise it cannot.
type pod struct {
	id      string
	asleep  *atomic.Bool
	wakeErr error
}

func (p pod) Ping(context.Context) error { return nil }

func (p pod) WriteMetrics(_ context.Context, t *prom.Text) {
	t.Single("kata_shim_agent_up", prom.Gauge, "Up.", 1)
	t.Family("kata_guest_load", prom.Gauge, "Load.")
	t.Sample(0.5, "item", "load1")
}

func (pod) OpenDebug(context.Context) (*guest.DebugConsole, error) {
	return nil, fmt.Errorf("no debug console: %w", errdefs.ErrFailedPrecondition)
}

func (p pod) Console() string { return "console of " + p.id }

// VolumeStats and GrowVolume know the volume that is named after the pod.
func (p pod) VolumeStats(_ context.Context, path string) (v guestfs.AssignedVolume, err error) {
	if path != "/"+p.id {
		return v, fmt.Errorf("volume %s: %w", path, errdefs.ErrNotFound)
	}
	v.Bytes.Total = 7
	return v, nil
}

func (p pod) GrowVolume(ctx context.Context, path string, size uint64) (uint64, error) {
	if size == 1 {
		return 0, fmt.Errorf("volume %s does not shrink: %w", path, errdefs.ErrInvalidArgument)
	}
	_, err := p.VolumeStats(ctx, path)
	return size, err
}

// IPTables returns rules that name the pod and their family.
func (p pod) IPTables(_ context.Context, ipv6 bool) ([]byte, error) {
	return fmt.Appendf(nil, "rules of %s, IPv6 %t", p.id, ipv6), nil
}

func (p pod) SetIPTables(_ context.Context, ipv6 bool, rules []byte) error {
	return fmt.Errorf("IPv6 %t, %d bytes:\n\x1b[2J\x00line 1 failed", ipv6, len(rules))
}

func (p pod) Describe() virtcontainers.Description {
	d := virtcontainers.Description{ID: p.id, Pod: bundle.PodName{Name: "name-of-" + p.id, Namespace: "ns", UID: "u-" + p.id}}
	if p.asleep != nil && p.asleep.Load() {
		d.Hibernation = &saved
	}
	return d
}

// newRoot makes a directory with a path short enough for sockets.
func newRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "kb") //nolint:usetesting // t.TempDir gives names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// record makes the record of a pod whose shim is that process, and returns its
// directory.
func record(t *testing.T, root, id string, shim persist.Process) string {
	t.Helper()
	owner := persist.Owner{Address: "/run/e.sock", Namespace: "k8s.io"}
	s, err := persist.Create(root, owner, id)
	if err == nil {
		err = s.Update(func(r *persist.Record) { r.Shim = shim })
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, owner.Name(id))
}

// running makes a pod that answers.
func running(t *testing.T, root, id string) {
	t.Helper()
	listening(t, root, pod{id: id})
}

func listening(t *testing.T, root string, p pod) {
	t.Helper()
	listeningAs(t, root, p.id, p)
}

func listeningAs(t *testing.T, root, id string, p management.Sandbox) {
	t.Helper()
	dir := record(t, root, id, self(t))
	s, err := management.Listen(t.Context(), dir, management.Source{Sandbox: p, Calls: new(prom.Durations)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
}

func self(t *testing.T) persist.Process {
	t.Helper()
	p, err := persist.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// raw makes a pod whose socket is served by answer.
func raw(t *testing.T, root, id string, answer func(net.Conn)) {
	t.Helper()
	dir := record(t, root, id, self(t))
	l, err := net.Listen("unix", filepath.Join(dir, management.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			answer(conn)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-served
	})
}

func TestPods(t *testing.T) {
	root := newRoot(t)
	if pods, err := Pods(root + "/none"); err != nil || len(pods) != 0 {
		t.Errorf("without records: %v, %v", pods, err)
	}
	running(t, root, "abc2")
	running(t, root, "abc1")
	record(t, root, "dead", persist.Process{PID: 1 << 30, Start: 1})
	pods, err := Pods(root)
	if err != nil || len(pods) != 2 || pods[0].ID != "abc1" || pods[1].ID != "abc2" || pods[0].Owner.Namespace != "k8s.io" {
		t.Fatalf("%v, %v", pods, err)
	}
	for id, want := range map[string]error{"abc1": nil, "abc2": nil, "abc": errdefs.ErrFailedPrecondition, "dead": errdefs.ErrNotFound, "": errdefs.ErrNotFound} {
		if p, err := Find(root, id); !errors.Is(err, want) || err == nil && p.ID != id {
			t.Errorf("%q: %v, %v, want %v", id, p, err, want)
		}
	}
	running(t, root, "abc")
	if p, err := Find(root, "abc"); err != nil || p.ID != "abc" {
		t.Errorf("an id that others begin with: %v, %v", p, err)
	}
}

// In a container no shim is seen as a process: it is found by its socket. That of a
// dead one may be left.
func TestPodsWithoutTheirProcesses(t *testing.T) {
	root, unseen := newRoot(t), persist.Process{PID: 1 << 30, Start: 1}
	for id, dead := range map[string]bool{"lives": false, "dead": true} {
		l, err := net.Listen("unix", filepath.Join(record(t, root, id, unseen), management.SocketName))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		if dead {
			l.(*net.UnixListener).SetUnlinkOnClose(false)
			_ = l.Close()
		}
	}
	if pods, err := Pods(root); err != nil || len(pods) != 1 || pods[0].ID != "lives" {
		t.Errorf("%v, %v; want the pod that listens", pods, err)
	}
}

// A shim has no socket until its machine has started.
func TestPodThatStarts(t *testing.T) {
	root := newRoot(t)
	record(t, root, "p1", self(t))
	p, err := Find(root, "p1")
	if err != nil {
		t.Fatal(err)
	}
	_, logErr := p.Log(t.Context(), 0, 0)
	_, debugErr := p.OpenDebug(t.Context())
	for what, err := range map[string]error{"log": logErr, "debug": debugErr} {
		if !errors.Is(err, errdefs.ErrUnavailable) || !strings.Contains(err.Error(), "is starting the machine") || strings.Contains(err.Error(), "http:") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A scrape has every pod that answers, distinguished by labels, whatever others
// do: a shim without a socket, one that answers nonsense, one whose answer never
// ends.
func TestScrape(t *testing.T) {
	root := newRoot(t)
	running(t, root, "p1")
	running(t, root, "p2")
	record(t, root, "no-socket", self(t))
	raw(t, root, "nonsense", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\n}{\"\n")
	})
	raw(t, root, "refuses", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 503 No\r\nConnection: close\r\n\r\nbusy")
	})
	endless := atomic.Bool{}
	raw(t, root, "endless", func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
		line := []byte(strings.Repeat("a", 1<<16))
		for range 2 * maxAnswer / len(line) {
			if _, err := c.Write(line); err != nil {
				return
			}
		}
		endless.Store(true)
	})
	pods, err := Pods(root)
	if err != nil {
		t.Fatal(err)
	}
	families, errs := Scrape(t.Context(), pods)
	if len(errs) != 4 || endless.Load() {
		t.Errorf("errors: %v, endless answer taken %v", errs, endless.Load())
	}
	var out strings.Builder
	if err := families.Write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`kata_shim_agent_up{cri_name="name-of-p1",cri_namespace="ns",cri_uid="u-p1",sandbox_id="p1"} 1`,
		`kata_guest_load{cri_name="name-of-p2",cri_namespace="ns",cri_uid="u-p2",item="load1",sandbox_id="p2"} 0.5`,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("without %s:\n%s", want, out.String())
		}
	}
	if n := strings.Count(out.String(), "# TYPE kata_shim_agent_up "); n != 1 {
		t.Errorf("the family is there %d times", n)
	}
	if _, err := parse([]byte(out.String())); err != nil {
		t.Error(err)
	}
}

// A hanging shim is given up after the timeout, or earlier if the context's is
// shorter.
func TestHungShim(t *testing.T) {
	root := newRoot(t)
	running(t, root, "p1")
	release := make(chan struct{})
	raw(t, root, "hangs", func(net.Conn) { <-release })
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	pods, err := Pods(root)
	if err != nil {
		t.Fatal(err)
	}
	hung := pods[0]
	if _, err := hung.Ask(ctx, "/metrics"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the deadline's error", err)
	}
}

func TestMonitor(t *testing.T) {
	root := newRoot(t)
	running(t, root, "p1")
	record(t, root, "no-socket", self(t))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	m := New(root)
	go func() { served <- m.Serve(ctx, l) }()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path, accept string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s%s", l.Addr(), path), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	get("/metrics", "")
	code, body := get("/metrics", "")
	for _, want := range []string{`sandbox_id="p1"`, "kata_monitor_running_shim_count 2", "kata_monitor_scrape_count 2", "kata_monitor_scrape_failed_count 2", "kata_monitor_go_goroutines"} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%d, without %s", code, want)
		}
	}
	if _, err := parse([]byte(body)); err != nil {
		t.Error(err)
	}
	if code, body := get("/metrics?sandbox=p1", ""); code != http.StatusOK || !strings.Contains(body, "kata_") || strings.Contains(body, "sandbox_id") || strings.Contains(body, "kata_monitor") {
		t.Errorf("the metrics of p1: %d, %q", code, body)
	}
	if code, body := get("/metrics?sandbox=other", ""); code != http.StatusNotFound || !strings.Contains(body, "find sandbox other: no pod of that id runs") {
		t.Errorf("the metrics of a pod that does not run: %d, %q", code, body)
	}
	if code, body := get("/metrics?sandbox=p", ""); code != http.StatusNotFound {
		t.Errorf("the metrics of a pod by the beginning of its id: %d, %q", code, body)
	}
	for range maxAsking {
		m.asking <- struct{}{}
	}
	if code, body := get("/metrics?sandbox=p1", ""); code != http.StatusServiceUnavailable {
		t.Errorf("one client too many: %d, %q", code, body)
	}
	for range maxAsking {
		<-m.asking
	}
	if code, body := get("/metrics?sandbox=no-socket", ""); code != http.StatusInternalServerError || !strings.Contains(body, "ask pod no-socket") {
		t.Errorf("the metrics of a pod that starts: %d, %q", code, body)
	}
	if _, body := get("/sandboxes", ""); body != "no-socket\np1\n" {
		t.Errorf("sandboxes: %q", body)
	}
	if _, body := get("/sandboxes", "application/json"); body != "[\"no-socket\",\"p1\"]\n" {
		t.Errorf("sandboxes: %q", body)
	}
	if code, _ := get("/none", ""); code != http.StatusNotFound {
		t.Errorf("an unknown path: %d", code)
	}
	if err := Ready(t.Context(), l.Addr().String()); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := Ready(t.Context(), l.Addr().String()); err == nil {
		t.Error("a monitor that has ended is ready")
	}
}

// A monitor that may not list the records, as SELinux decides, says so: it would
// serve the metrics of no pod.
func TestMonitorWithoutRecords(t *testing.T) {
	root := filepath.Join(t.TempDir(), "sandboxes")
	if err := os.WriteFile(root, nil, 0o600); err != nil { // root may list any directory
		t.Fatal(err)
	}
	server := httptest.NewServer(New(root).Handler())
	defer server.Close()
	address := strings.TrimPrefix(server.URL, "http://")
	if err := Ready(t.Context(), address); err == nil || !strings.Contains(err.Error(), "list sandbox states") {
		t.Errorf("error %v", err)
	}
	if err := os.Remove(root); err != nil { // as before the node's first pod
		t.Fatal(err)
	}
	if err := Ready(t.Context(), address); err != nil {
		t.Error(err)
	}
}

// All pods are asked for a volume: one has it, another does not answer.
func TestVolumes(t *testing.T) {
	root := newRoot(t)
	for _, id := range []string{"p1", "p2"} {
		running(t, root, id)
	}
	pods := func() []Pod {
		all, err := Pods(root)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if _, err := VolumeStats(t.Context(), pods(), "/none"); !errdefs.IsNotFound(err) {
		t.Errorf("stats of a volume that no pod has: %v", err)
	}
	if _, err := GrowVolume(t.Context(), pods(), "/none", 2); !errdefs.IsNotFound(err) {
		t.Errorf("grow a volume that no pod has: %v", err)
	}
	if _, err := GrowVolume(t.Context(), pods(), "/p2", 1); err == nil || !strings.Contains(err.Error(), "pod p2: 400 Bad Request: volume /p2 does not shrink") {
		t.Errorf("shrink: %v", err)
	}
	raw(t, root, "p0", func(net.Conn) {})
	if stats, err := VolumeStats(t.Context(), pods(), "/p2"); err != nil || !strings.Contains(string(stats), `"total":7`) {
		t.Errorf("stats: %s, %v", stats, err)
	}
	if size, err := GrowVolume(t.Context(), pods(), "/p1", 1<<40+1); err != nil || size != 1<<40+1 {
		t.Errorf("grow: %d, %v", size, err)
	}
	if _, err := VolumeStats(t.Context(), pods(), "/none"); err == nil || errdefs.IsNotFound(err) || !strings.Contains(err.Error(), "p0") {
		t.Errorf("a pod that may have it did not answer: %v", err)
	}
}

// A pod whose shim is stopped is waited for neither when another has told of the
// volume, nor for as long as a volume may take to grow.
func TestVolumesBesideAPodThatHangs(t *testing.T) {
	root := newRoot(t)
	running(t, root, "p1")
	over := make(chan struct{})
	raw(t, root, "p0", func(net.Conn) { <-over })
	t.Cleanup(func() { close(over) })
	pods, err := Pods(root)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if _, err := VolumeStats(t.Context(), pods, "/p1"); err != nil || time.Since(start) >= askTimeout {
		t.Errorf("stats: %v after %v", err, time.Since(start))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*askTimeout)
	defer cancel()
	if size, err := GrowVolume(ctx, pods, "/p1", 9); err != nil || size != 9 || ctx.Err() != nil {
		t.Errorf("grow: %d, %v, %v", size, err, ctx.Err())
	}
}

// sharing is a pod that has the volume /shared, and counts how often it has grown.
type sharing struct {
	pod
	statsErr error
	takes    time.Duration
	grown    *atomic.Int32
}

func (p sharing) VolumeStats(context.Context, string) (guestfs.AssignedVolume, error) {
	return guestfs.AssignedVolume{}, p.statsErr
}

func (p sharing) GrowVolume(ctx context.Context, _ string, size uint64) (uint64, error) {
	select {
	case <-time.After(p.takes):
		p.grown.Add(1)
		return size, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

// Each pod that has a volume enlarges it to the end, also when another has done so
// before. One that hibernates does not tell of it, and is asked all the same.
func TestGrowSharedVolume(t *testing.T) {
	root := newRoot(t)
	grown := new(atomic.Int32)
	listeningAs(t, root, "p1", sharing{grown: grown})
	listeningAs(t, root, "p2", sharing{grown: grown, takes: 200 * time.Millisecond})
	listeningAs(t, root, "p3", sharing{grown: grown, statsErr: errdefs.ErrUnavailable})
	running(t, root, "p4")
	pods, err := Pods(root)
	if err != nil {
		t.Fatal(err)
	}
	if size, err := GrowVolume(t.Context(), pods, "/shared", 9); err != nil || size != 9 || grown.Load() != 3 {
		t.Errorf("grow: %d, %v, in %d pods, want 3", size, err, grown.Load())
	}
}
