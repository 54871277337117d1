package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// registryHosts are those that the suite pulls from.
var registryHosts = []string{"ghcr.io", "registry.k8s.io", "docker.io", "registry-1.docker.io"}

// proxy is an HTTPS proxy that answers for every host itself: to clients that
// trust its certificate it is every registry.
type proxy struct {
	// URL is where it listens, on 127.0.0.1.
	URL     string
	servers [2]*http.Server
	conns   *connQueue
	ended   sync.WaitGroup
}

// startProxy serves the handler as every registry, and writes its certificate,
// for clients to trust, to a file. The caller must Close it.
func startProxy(handler http.Handler, certFile string) (*proxy, error) {
	cert, err := newCertificate(certFile)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for image pulls: %w", err)
	}
	const headerTimeout = 30 * time.Second
	p := &proxy{URL: "http://" + listener.Addr().String(), conns: newConnQueue(listener.Addr())}
	p.servers = [2]*http.Server{
		{Handler: http.HandlerFunc(p.connect), ReadHeaderTimeout: headerTimeout},
		{Handler: handler, ReadHeaderTimeout: headerTimeout, TLSConfig: &tls.Config{Certificates: []tls.Certificate{cert}}},
	}
	p.ended.Go(func() { _ = p.servers[0].Serve(listener) }) // http.ErrServerClosed
	p.ended.Go(func() { _ = p.servers[1].ServeTLS(p.conns, "", "") })
	return p, nil
}

// connect answers a CONNECT (RFC 9110, 9.3.6): the other end of the tunnel is
// the registry.
func (p *proxy) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "this proxy makes tunnels only", http.StatusMethodNotAllowed)
		return
	}
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		http.Error(w, "no tunnel can be made", http.StatusInternalServerError)
		return
	}
	conn, _, err := hijacker.Hijack()
	if err != nil {
		return // the client is gone
	}
	if _, err := conn.Write([]byte("HTTP/1.1 200 OK\r\n\r\n")); err != nil || !p.conns.put(conn) {
		_ = conn.Close()
	}
}

// Close ends the proxy and every pull.
func (p *proxy) Close() error {
	err := errors.Join(p.servers[0].Close(), p.servers[1].Close())
	p.ended.Wait()
	return err
}

// connQueue is a net.Listener whose connections come from elsewhere.
type connQueue struct {
	addr   net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newConnQueue(addr net.Addr) *connQueue {
	return &connQueue{addr: addr, conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (q *connQueue) put(conn net.Conn) bool {
	select {
	case q.conns <- conn:
		return true
	case <-q.closed:
		return false
	}
}

// Accept implements net.Listener.
func (q *connQueue) Accept() (net.Conn, error) {
	select {
	case conn := <-q.conns:
		return conn, nil
	case <-q.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (q *connQueue) Close() error {
	q.once.Do(func() { close(q.closed) })
	return nil
}

// Addr implements net.Listener.
func (q *connQueue) Addr() net.Addr { return q.addr }

// newCertificate makes a certificate for the registries, signed by itself, and
// writes it to a file.
func newCertificate(file string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "registries of a test"}, DNSNames: registryHosts,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return tls.Certificate{}, fmt.Errorf("write certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
