package installer

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// api answers as Kubernetes' API does, with the given codes in order.
func api(t *testing.T, codes ...int) (c *cluster, asked *[]string) {
	t.Helper()
	asked = &[]string{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*asked = append(*asked, strings.Join([]string{
			r.Method, r.URL.Path, r.Header.Get("Authorization"), r.Header.Get("Content-Type"), string(body),
		}, " "))
		w.WriteHeader(codes[min(len(*asked), len(codes))-1])
		_, _ = io.WriteString(w, `{"message": "nodes is forbidden"}`)
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	err := errors.Join(os.WriteFile(filepath.Join(dir, "ca.crt"), authority, 0o600), os.WriteFile(filepath.Join(dir, "token"), []byte("secret\n"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	if c, err = newCluster(server.URL, dir); err != nil {
		t.Fatal(err)
	}
	c.pause = 0
	return c, asked
}

func TestLabel(t *testing.T) {
	c, asked := api(t, http.StatusServiceUnavailable, http.StatusOK)
	if err := c.label(t.Context(), "node-1", true); err != nil {
		t.Fatal(err)
	}
	want := `PATCH /api/v1/nodes/node-1 Bearer secret application/merge-patch+json {"metadata":{"labels":{"katacontainers.io/kata-runtime":"true"}}}`
	if len(*asked) != 2 || (*asked)[1] != want {
		t.Errorf("asked %q, want twice %q", *asked, want)
	}
	if err := c.label(t.Context(), "node-1", false); err != nil {
		t.Fatal(err)
	}
	if got := (*asked)[2]; !strings.HasSuffix(got, `{"katacontainers.io/kata-runtime":null}}}`) {
		t.Errorf("removing the label asked %q", got)
	}
}

func TestLabelRefused(t *testing.T) {
	c, asked := api(t, http.StatusForbidden)
	err := c.label(t.Context(), "node-1", true)
	if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "nodes is forbidden") || len(*asked) != 1 {
		t.Errorf("got %v after %d requests", err, len(*asked))
	}
}

// The label is set last by an installation and removed first by its removal.
func TestLabelOrder(t *testing.T) {
	h := newHost(t, nodes["containerd 2.x"])
	c, asked := api(t, http.StatusForbidden)
	o := h.options(newBuild(t, "shim"))
	o.cluster, o.NodeName = c, "node-1"
	if _, err := Install(t.Context(), o); !errors.Is(err, errRefused) {
		t.Fatal(err)
	}
	if h.restarts() != "containerd" {
		t.Error("the label came before the restart")
	}
	complete := len(h.tree())
	if _, err := Uninstall(t.Context(), o); !errors.Is(err, errRefused) || len(h.tree()) != complete {
		t.Errorf("uninstall went on with the label in place: %v", err)
	}
	if len(*asked) != 2 {
		t.Errorf("%d requests, want 2", len(*asked))
	}
}
