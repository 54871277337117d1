package images

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// request is a parsed path of the distribution API (distribution-spec 1.1,
// "Pull").
type request struct {
	name string // repository
	kind string // "manifests" or "blobs"
	ref  string // tag or digest
}

// parsePath parses the path of a URL; ok is false if it names nothing that can
// be pulled.
func parsePath(path string) (r request, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v2/")
	if !ok {
		return request{}, false
	}
	words := strings.Split(rest, "/")
	if len(words) < 3 {
		return request{}, false
	}
	n := len(words)
	r = request{strings.Join(words[:n-2], "/"), words[n-2], words[n-1]}
	return r, r.name != "" && r.ref != "" && (r.kind == "manifests" || r.kind == "blobs")
}

// repository is an image's name without its tag.
func repository(name string) string {
	name, _, _ = strings.Cut(name, ":")
	return name
}

// find returns the requested blob.
func (s *Store) find(r request) (digest.Digest, blob, bool) {
	if !s.repositories[r.name] {
		return "", blob{}, false
	}
	d, tagged := s.manifests[r.name+":"+r.ref]
	if r.kind == "blobs" || !tagged {
		d = digest.Digest(r.ref)
	}
	b, ok := s.blobs[d]
	if (b.mediaType == v1.MediaTypeImageManifest) != (r.kind == "manifests") {
		return "", blob{}, false
	}
	return d, b, ok
}

// ServeHTTP answers GET and HEAD for manifests and blobs, and everything else
// as a registry that does not have it.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "this registry is read-only", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/v2/" {
		return
	}
	asked, ok := parsePath(r.URL.Path)
	if !ok {
		http.NotFound(w, r)
		return
	}
	d, b, ok := s.find(asked)
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", b.mediaType)
	w.Header().Set("Content-Length", strconv.Itoa(len(b.data)))
	w.Header().Set("Docker-Content-Digest", d.String())
	if r.Method == http.MethodGet {
		_, _ = w.Write(b.data) // a client that went away gets no error
	}
}

// Server is a running registry.
type Server struct {
	// URL is where it listens, on 127.0.0.1.
	URL    string
	server *http.Server
	done   chan error
}

// Serve starts a registry on a free port. The caller must Close it.
func Serve(s *Store) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for image pulls: %w", err)
	}
	r := &Server{
		URL:    "http://" + listener.Addr().String(),
		server: &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second},
		done:   make(chan error, 1),
	}
	go func() { r.done <- r.server.Serve(listener) }()
	return r, nil
}

// Close ends the registry and every pull, and waits until it is gone.
func (r *Server) Close() error {
	err := r.server.Close()
	<-r.done // http.ErrServerClosed
	return err
}
