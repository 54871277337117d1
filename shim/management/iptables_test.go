package management

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/katabox/katabox/virtcontainers/guest"
)

func put(t *testing.T, client *http.Client, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://shim"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

func TestIPTables(t *testing.T) {
	_, client := serve(t, Source{Sandbox: pod{rules: new(sync.Map)}})
	rules := map[string]string{
		IPTablesPath:  "*filter\x00\x1b[2J\xff\nCOMMIT\n",
		IP6TablesPath: strings.Repeat("#", guest.MaxIPTables),
	}
	for path, text := range rules {
		if code, answer := put(t, client, path, text); code != 200 || answer != "" {
			t.Errorf("set %s: %d, %q", path, code, answer)
		}
	}
	for path, want := range rules {
		if code, got := get(t, client, path); code != 200 || got != want {
			t.Errorf("get %s: %d, %.100q", path, code, got)
		}
	}
	if code, answer := put(t, client, IPTablesPath, "wrong"); code != 500 || !strings.Contains(answer, "line 1 failed") {
		t.Errorf("rules that are wrong: %d, %q", code, answer)
	}
}

func TestIPTablesWithoutTools(t *testing.T) {
	_, client := serve(t, Source{Sandbox: pod{}})
	if code, answer := get(t, client, IPTablesPath); code != 501 || !strings.Contains(answer, "no iptables-save") {
		t.Errorf("%d, %q", code, answer)
	}
}

// A client that sends more than is taken gets the reason, also one that reads
// nothing before it has sent everything.
func TestTooManyRules(t *testing.T) {
	socket, client := serve(t, Source{Sandbox: pod{rules: new(sync.Map)}})
	for _, length := range []int{guest.MaxIPTables + 1, 32 << 20} {
		want := fmt.Sprintf("its body is too long: %d bytes, want 1048576 at most", length)
		if code, answer := put(t, client, IPTablesPath, strings.Repeat("#", length)); code != 413 || !strings.Contains(answer, want) {
			t.Errorf("%d bytes: %d, %q, want %q", length, code, answer, want)
		}
		// Made before the server begins to wait for it.
		request := fmt.Sprintf("PUT %s HTTP/1.1\r\nContent-Length: %d\r\nHost: shim\r\n\r\n", IPTablesPath, length) + strings.Repeat("#", length)
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, request); err != nil {
			t.Errorf("%d bytes, sent at once: %v", length, err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 413 ") || !strings.Contains(string(answer), want) {
			t.Errorf("%d bytes, sent at once: %q, %v, want %q", length, answer, err, want)
		}
		_ = conn.Close()
	}
}
