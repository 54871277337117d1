package images

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Server is a running registry.
type Server struct {
	// URL is where it listens, on 127.0.0.1.
	URL    string
	server *http.Server
	done   chan error
}

// Serve starts a registry of the store's images on a free port. The caller must
// Close it.
func Serve(s *Store) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for image pulls: %w", err)
	}
	host := listener.Addr().String()
	r := &Server{
		URL:    "http://" + host,
		server: &http.Server{Handler: wholeBlobs(registry.New(registry.Logger(log.New(io.Discard, "", 0)))), ReadHeaderTimeout: 10 * time.Second},
		done:   make(chan error, 1),
	}
	go func() { r.done <- r.server.Serve(listener) }()
	if err := s.push(host); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// wholeBlobs answers requests for part of a blob with all of it. Clients resume a
// pull with a range that has no end ("bytes=5-"); they accept this (containerd,
// core/remotes/docker/fetcher.go, open), but not what handler says, that it does not
// understand such a range.
func wholeBlobs(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("Range")
		handler.ServeHTTP(w, r)
	})
}

// push stores the images in the registry at host.
func (s *Store) push(host string) error {
	for path, img := range s.images {
		tag, err := name.NewTag(host + "/" + path)
		if err == nil {
			err = remote.Write(tag, img)
		}
		if err != nil {
			return fmt.Errorf("store image %s: %w", path, err)
		}
	}
	return nil
}

// Close ends the registry and every pull, and waits until it is gone.
func (r *Server) Close() error {
	err := r.server.Close()
	<-r.done // http.ErrServerClosed
	return err
}
