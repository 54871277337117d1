package image

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
)

// A registry's configuration is refused by the size that its manifest names, before it
// is read: the library reads it into memory.
func TestLargeConfigurationIsNotRead(t *testing.T) {
	manifest := fmt.Sprintf(`{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": [],
		"config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": %q, "size": %d}}`, digest.FromString("x"), int64(1)<<40)
	read := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/manifests/"):
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			_, _ = io.WriteString(w, manifest)
		case strings.Contains(r.URL.Path, "/blobs/"):
			for block := make([]byte, 1<<20); read < 64; read++ {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}
	}))
	defer server.Close()
	_, err := open(t, strings.TrimPrefix(server.URL, "http://")+"/app:1")
	if err == nil || !strings.Contains(err.Error(), "1099511627776 bytes") || read > 0 {
		t.Errorf("%d MiB were read, error %v", read, err)
	}
}
