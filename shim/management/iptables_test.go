package management

import (
	"io"
	"net/http"
	"strings"
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
	_, client := serve(t, Source{Sandbox: pod{rules: map[bool][]byte{}}})
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
