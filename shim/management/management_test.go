package management

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"

	"github.com/katabox/katabox/shim/journal"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/prom"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pod is a sandbox whose agent answers or fails or hangs.
type pod struct {
	pingErr  error
	hang     bool
	console  string    // a socket
	rules    *sync.Map // by family; each request has its own goroutine
	sleepErr error     // why it can neither hibernate nor wake
}

func (p pod) Ping(ctx context.Context) error {
	if p.hang {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return p.pingErr
}

func (p pod) WriteMetrics(_ context.Context, t *prom.Text) {
	t.Single("kata_shim_agent_up", prom.Gauge, "Up.", 1)
}

func (p pod) OpenDebug(context.Context) (*guest.DebugConsole, error) {
	if p.console == "" {
		return nil, fmt.Errorf("no debug console: %w", errdefs.ErrFailedPrecondition)
	}
	conn, err := net.Dial("unix", p.console)
	if err != nil {
		return nil, err
	}
	return guest.NewDebugConsole(conn.(*net.UnixConn)), nil
}

func (pod) Console() string { return "the guest's console\n" }

// VolumeStats knows /v, of which a third is used, and /failed.
func (pod) VolumeStats(_ context.Context, path string) (guestfs.AssignedVolume, error) {
	v := guestfs.AssignedVolume{Failed: path == "/failed"}
	v.Bytes, v.Inodes = guest.Usage{Total: 30, Available: 19, Used: 10}, guest.Usage{Total: 3, Available: 2, Used: 1}
	if path != "/v" && !v.Failed {
		return v, fmt.Errorf("volume %s: %w", path, errdefs.ErrNotFound)
	}
	return v, nil
}

// GrowVolume refuses to grow to 1 byte, and /btrfs.
func (pod) GrowVolume(_ context.Context, path string, size uint64) (uint64, error) {
	switch {
	case path == "/btrfs":
		return 0, fmt.Errorf("volume %s: %w", path, errdefs.ErrNotImplemented)
	case size == 1:
		return 0, fmt.Errorf("volume %s: it does not shrink: %w", path, errdefs.ErrInvalidArgument)
	}
	return size + 1, nil
}

// IPTables returns what SetIPTables has in rules, by family.
func (p pod) IPTables(_ context.Context, ipv6 bool) ([]byte, error) {
	if p.rules == nil {
		return nil, fmt.Errorf("no iptables-save: %w", errdefs.ErrNotImplemented)
	}
	rules, _ := p.rules.Load(ipv6)
	text, _ := rules.([]byte)
	return text, nil
}

func (p pod) SetIPTables(_ context.Context, ipv6 bool, rules []byte) error {
	if string(rules) == "wrong" {
		return errors.New("iptables-restore: exit status 2: line 1 failed")
	}
	p.rules.Store(ipv6, rules)
	return nil
}

func (p pod) Describe() virtcontainers.Description { return virtcontainers.Description{ID: "p1"} }

// serve serves the pod and returns the socket and a client.
func serve(t *testing.T, source Source) (string, *http.Client) {
	t.Helper()
	dir := t.TempDir()
	if source.Calls == nil {
		source.Calls = new(prom.Durations)
	}
	s, err := Listen(t.Context(), dir, source)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, SocketName)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
	})
	return path, &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
}

func get(t *testing.T, client *http.Client, path string) (int, string) {
	t.Helper()
	resp, err := client.Get("http://shim" + path)
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

func TestAnswers(t *testing.T) {
	calls := new(prom.Durations)
	calls.Observe("create", time.Second)
	path, client := serve(t, Source{Sandbox: pod{}, Calls: calls})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("socket: %v, %v", info, err)
	}
	code, body := get(t, client, "/metrics?x=1")
	for _, want := range []string{"kata_shim_agent_up 1", "kata_shim_fds ", `kata_shim_proc_status{item="vmrss"}`, "kata_shim_go_goroutines",
		`kata_shim_rpc_durations_histogram_milliseconds_count{action="create"} 1`} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("metrics: %d, without %s:\n%s", code, want, body)
		}
	}
	if code, body := get(t, client, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("health: %d, %s", code, body)
	}
	var d virtcontainers.Description
	if code, body := get(t, client, "/sandbox"); code != 200 || json.Unmarshal([]byte(body), &d) != nil || d.ID != "p1" {
		t.Errorf("sandbox: %d, %s", code, body)
	}
	for _, path := range []string{"/", "/none", "/debug/pprof/heap", "/debug/pprof/profile"} {
		if code, _ := get(t, client, path); code != 404 {
			t.Errorf("%s: %d, want 404", path, code)
		}
	}
}

func TestVolumeStats(t *testing.T) {
	_, client := serve(t, Source{Sandbox: pod{}})
	const usage = `{"usage":[{"available":19,"total":30,"used":10,"unit":1},{"available":2,"total":3,"used":1,"unit":2}],"volume_condition":`
	for path, want := range map[string]string{
		"?path=/v": usage + `{"abnormal":false,"message":"OK"}}`, "?path=%2Fv": usage, "/%2Fv": usage,
		"?path=/failed": usage + `{"abnormal":true,"message":"the file system is read-only`,
	} {
		if code, body := get(t, client, VolumeStatsPath+path); code != 200 || !strings.HasPrefix(body, want) {
			t.Errorf("%s: %d, %s", path, code, body)
		}
	}
	for path, want := range map[string]int{"": 400, "?path=v": 400, "/v": 400, "?path=/other": 404, "/%2Fother": 404} {
		if code, body := get(t, client, VolumeStatsPath+path); code != want {
			t.Errorf("%s: %d, %s, want %d", path, code, body, want)
		}
	}
}

func TestVolumeResize(t *testing.T) {
	_, client := serve(t, Source{Sandbox: pod{}})
	for _, test := range []struct {
		body, want string
		code       int
	}{
		{`{"VolumePath": "/v", "Size": 4096}`, `{"size":4097}`, 200},
		{`{"volumePath": "/v", "Size": "4096"}`, `{"size":4097}`, 200}, // as Kata Containers documents it
		{`{"VolumePath": "/v"}`, `{"size":1}`, 200},
		{`{"VolumePath": "/v", "Size": 1}`, "it does not shrink", 400},
		{`{"VolumePath": "/v", "Size": -1}`, `Size is "-1"`, 400},
		{`{"VolumePath": "/v", "Size": 1.5}`, `Size is "1.5"`, 400},
		{`{"VolumePath": "/v", "Size": 99999999999999999999}`, "Size is", 400},
		{`{"VolumePath": "v", "Size": 4096}`, "want an absolute one", 400},
		{`{"VolumePath": "/btrfs", "Size": 4096}`, "volume /btrfs", 501},
		{"", "read request", 400},
		{strings.Repeat(" ", maxRequest+1), "want 8192 at most", 413},
	} {
		resp, err := client.Post("http://shim"+VolumeResizePath, "application/json", strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != test.code || !strings.Contains(string(body), test.want) {
			t.Errorf("%.60s: %d, %s, %v", test.body, resp.StatusCode, body, err)
		}
	}
}

func TestLog(t *testing.T) {
	logger, kept := logrus.New(), journal.New()
	logger.SetOutput(io.Discard)
	logger.AddHook(kept)
	logger.Info("first")
	logger.Info("second")
	_, client := serve(t, Source{Sandbox: pod{}, Log: kept})
	for path, want := range map[string]string{
		"/log": `{"seq":1,`, "/log?after=0&wait=9": `{"seq":1,`, "/log?after=1": `{"seq":2,`, "/log?after=2": "", "/log?after=2&wait=1": "",
		"/console": "the guest's console\n",
	} {
		if code, body := get(t, client, path); code != 200 || !strings.HasPrefix(body, want) || want == "" && body != "" {
			t.Errorf("%s: %d, %s, want %s", path, code, body, want)
		}
	}
	for _, query := range []string{"after=x", "after=-1", "wait=31", "wait=1.5"} {
		if code, body := get(t, client, "/log?"+query); code != 400 {
			t.Errorf("%s: %d, %s, want 400", query, code, body)
		}
	}
	time.AfterFunc(100*time.Millisecond, func() { logger.Info("third") })
	if code, body := get(t, client, "/log?after=2&wait=30"); code != 200 || !strings.Contains(body, `"msg":"third"`) {
		t.Errorf("a line that comes later: %d, %s", code, body)
	}
}

// The end of a pod does not wait for clients that follow its log.
func TestLogEndsWithThePod(t *testing.T) {
	var began time.Time
	t.Cleanup(func() { // after serve's, which ends the server
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
	path, _ := serve(t, Source{Sandbox: pod{}, Log: journal.New()})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, "GET /log?wait=30 HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
}

// Clients that follow the log leave room for others, and are bounded too.
func TestFollowersLeaveRoom(t *testing.T) {
	path, client := serve(t, Source{Sandbox: pod{}, Log: journal.New()})
	answered := make(chan string, maxLong+1)
	follow := func() {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := io.WriteString(conn, "GET /log?wait=30 HTTP/1.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		go func() {
			status, _ := bufio.NewReader(conn).ReadString('\n')
			answered <- status
		}()
	}
	// A follower has another's place for the moment in which its request is read.
	answers := func() {
		var err error
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(time.Millisecond) {
			var resp *http.Response
			if resp, err = client.Get("http://shim/healthz"); err == nil {
				resp.Body.Close()
				return
			}
		}
		t.Fatalf("beside clients that follow the log: %v", err)
	}
	for i := range maxLong {
		follow()
		if half := maxConnections / 2; i%half == half-1 { // client keeps a place, too
			answers()
		}
	}
	if len(answered) > 0 {
		t.Errorf("a follower was answered: %q", <-answered)
	}
	follow() // or another one whose request is read later
	select {
	case status := <-answered:
		if !strings.HasPrefix(status, "HTTP/1.1 503 ") {
			t.Errorf("one follower too many: %q", status)
		}
	case <-time.After(10 * time.Second):
		t.Error("one follower too many is not refused")
	}
}

// A connection becomes one to the guest, and nothing before its answer is lost.
func TestDebugConsole(t *testing.T) {
	far, err := net.Listen("unix", filepath.Join(t.TempDir(), "guest"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	path, client := serve(t, Source{Sandbox: pod{console: far.Addr().String()}})
	if code, body := get(t, client, DebugPath); code != 400 || !strings.Contains(body, DebugProtocol) {
		t.Errorf("without an upgrade: %d, %s", code, body)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET "+DebugPath+" HTTP/1.1\r\nUpgrade: "+DebugProtocol+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	guestEnd, err := far.Accept()
	if err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 512)
	n, err := conn.Read(answer)
	if err != nil || !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 101 ") || !strings.HasSuffix(string(answer[:n]), "\r\n\r\n") {
		t.Fatalf("%q, %v", answer[:n], err)
	}
	if _, err := io.WriteString(guestEnd, "hello"); err != nil {
		t.Error(err)
	}
	if err := guestEnd.Close(); err != nil {
		t.Error(err)
	}
	if rest, err := io.ReadAll(conn); err != nil || string(rest) != "hello" {
		t.Errorf("%q, %v", rest, err)
	}
}

func TestDebugConsoleRefused(t *testing.T) {
	path, _ := serve(t, Source{Sandbox: pod{}})
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET "+DebugPath+" HTTP/1.1\r\nUpgrade: "+DebugProtocol+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 409 ") || !strings.Contains(string(answer), "no debug console") {
		t.Errorf("%s, %v", answer, err)
	}
}

func TestHealthOfDeadAgent(t *testing.T) {
	_, client := serve(t, Source{Sandbox: pod{pingErr: errors.New("the guest is gone")}})
	if code, body := get(t, client, "/healthz"); code != 503 || body != "the guest is gone\n" {
		t.Errorf("%d, %s", code, body)
	}
}

func TestProfiles(t *testing.T) {
	_, client := serve(t, Source{Sandbox: pod{}, Profiles: true})
	if code, body := get(t, client, "/debug/pprof/goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile:") {
		t.Errorf("%d, %s", code, body)
	}
	if code, body := get(t, client, "/debug/pprof/heap"); code != 200 || len(body) == 0 {
		t.Errorf("%d, %d bytes", code, len(body))
	}
	for _, query := range []string{"seconds=0", "seconds=61", "seconds=x"} {
		if code, _ := get(t, client, "/debug/pprof/profile?"+query); code != 400 {
			t.Errorf("%s: %d, want 400", query, code)
		}
	}
	if code, body := get(t, client, "/debug/pprof/profile?seconds=1"); code != 200 || len(body) == 0 {
		t.Errorf("%d, %d bytes", code, len(body))
	}
}

func TestRefuses(t *testing.T) {
	path, _ := serve(t, Source{Sandbox: pod{}})
	for _, test := range []struct{ request, want string }{
		{"POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
		{"GET " + VolumeResizePath + " HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
		{"POST " + VolumeResizePath + " HTTP/1.1\r\nContent-Length: 9\r\n\r\n{}", "HTTP/1.1 400 "},
		{"POST " + VolumeResizePath + " HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "HTTP/1.1 400 "},
		{"POST " + VolumeResizePath + " HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", "HTTP/1.1 400 "},
		{"DELETE " + IPTablesPath + " HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
		{"PUT " + IP6TablesPath + " HTTP/1.1\r\nContent-Length: 1048577\r\n\r\n", "HTTP/1.1 413 "},
		{"GET " + IPTablesPath + " HTTP/1.1\r\nContent-Length: 1048576\r\n\r\n", "HTTP/1.1 413 "},
		{"hello\n", "HTTP/1.1 400 "},
		{"GET http://x/ HTTP/1.1\r\n\r\n", "HTTP/1.1 400 "},
		{"GET / HTTP/2\r\n\r\n", "HTTP/1.1 400 "},
		{"GET /" + strings.Repeat("a", maxRequest-5), "HTTP/1.1 400 "},
	} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, test.request); err != nil {
			t.Fatal(err)
		}
		_ = conn.(*net.UnixConn).CloseWrite()
		if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), test.want) {
			t.Errorf("%.40q: %v, %q, want %s", test.request, err, answer, test.want)
		}
		_ = conn.Close()
	}
}

// Clients that send nothing, and a guest that does not answer, neither exceed the
// bound of connections nor hold up the server's end.
func TestConnectionsAreBounded(t *testing.T) {
	path, _ := serve(t, Source{Sandbox: pod{hang: true}})
	var held []net.Conn
	defer func() {
		for _, c := range held {
			c.Close()
		}
	}()
	for range maxConnections {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, "GET /healthz HTTP/1.1\r\n"); err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	// Connections are accepted in order: this one finds all slots taken.
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a connection too many was answered: %d bytes, %v", n, err)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("GET /%zz HTTP/1.1\r\n\r\n"))
	f.Add([]byte("\n\n"))
	f.Add([]byte("POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := readRequest(bytes.NewReader(data), func(*request) int { return maxBody })
		if (r == nil) != (err != nil) {
			t.Fatalf("%v, %v", r, err)
		}
		if r != nil && (!strings.HasPrefix(r.path, "/") || len(r.path) > maxRequest || len(r.body) > maxBody) {
			t.Fatalf("%q", r.path)
		}
	})
}
