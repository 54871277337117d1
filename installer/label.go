package installer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// NodeLabel is the label by which a RuntimeClass selects nodes; its value is
// "true".
const NodeLabel = "katacontainers.io/kata-runtime"

// accountDir is where a pod finds its service account (Kubernetes, "Accessing the
// API from a Pod").
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// maxAnswer bounds how much of an answer is read, in bytes; labelTimeout bounds
// all attempts together.
const (
	maxAnswer    = 64 << 10
	labelTimeout = 2 * time.Minute
)

// cluster is the Kubernetes API as a pod reaches it.
type cluster struct {
	url    string
	token  string // the file
	client *http.Client
	// pause is the time between attempts: the API may be unavailable for a while
	// when the node's engine restarts.
	pause time.Duration
}

// inCluster returns the cluster of this process's pod, or nil outside of a pod.
func inCluster() (*cluster, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, nil
	}
	return newCluster("https://"+net.JoinHostPort(host, port), accountDir)
}

func newCluster(address, account string) (*cluster, error) {
	authority, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the service account of this pod: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("read %s/ca.crt: it has no certificate", account)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return &cluster{
		url: address, token: filepath.Join(account, "token"), pause: 2 * time.Second,
		client: &http.Client{Transport: transport, Timeout: 10 * time.Second},
	}, nil
}

// errRefused is the error for a request that the API refuses.
var errRefused = errors.New("refused")

// label sets or removes the node's label. It retries for two minutes while the
// API cannot be reached.
func (c *cluster) label(ctx context.Context, name string, set bool) error {
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	for {
		err := c.patch(ctx, name, set)
		if err == nil || errors.Is(err, errRefused) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(c.pause):
		}
	}
}

func (c *cluster) patch(ctx context.Context, name string, set bool) error {
	var value any
	if set {
		value = "true"
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{NodeLabel: value}}})
	if err != nil {
		return err
	}
	token, err := os.ReadFile(c.token) // it is renewed from time to time
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, c.url+"/api/v1/nodes/"+url.PathEscape(name), bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := c.client.Do(request)
	if err != nil {
		return fmt.Errorf("label node %s: %w", name, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	switch {
	case answer.StatusCode < 300:
		return nil
	case answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("label node %s: %s", name, answer.Status)
	default:
		return fmt.Errorf("label node %s: %w: %s: %s", name, errRefused, answer.Status, messageOf(text))
	}
}

// messageOf returns the message in an error answer of the API.
func messageOf(text []byte) string {
	var status struct {
		Message string `json:"message"`
	}
	if json.Unmarshal(text, &status) != nil || status.Message == "" {
		return strings.TrimSpace(string(text[:min(len(text), 200)]))
	}
	return status.Message
}
