package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// api is the client of the API, for what must not wait for the start of kubectl.
var api = &http.Client{Transport: &http.Transport{
	TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // the cluster's certificate is its own
}}

const podsURL = "https://" + nodeIP + ":" + apiPort + "/api/v1/namespaces/default/pods"

// PodEvent is a change of a pod, as a watch reports it.
type PodEvent struct {
	// Time is when the event arrived here.
	Time time.Time
	Pod  struct {
		Metadata struct{ Name string }
		Status   struct{ Phase string }
	}
}

// CreatePod creates a pod from YAML, and returns when the request was sent.
func (n *Node) CreatePod(ctx context.Context, yaml string) (time.Time, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, podsURL, strings.NewReader(yaml))
	if err != nil {
		return time.Time{}, err
	}
	request.Header.Set("Content-Type", "application/yaml")
	sent := time.Now()
	response, err := call(request, http.StatusCreated)
	if err != nil {
		return time.Time{}, fmt.Errorf("create a pod: %w", err)
	}
	return sent, response.Body.Close()
}

// WatchPods begins a watch of the pods with a label, of which there are none yet, and
// then calls begun. It calls each for every event until that returns true.
func (n *Node) WatchPods(ctx context.Context, label string, begun func() error, each func(PodEvent) bool) error {
	// Without a version the server may wait for one that no pod has, and fail.
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, podsURL+"?watch=1&resourceVersion=0&labelSelector="+label, nil)
	if err != nil {
		return err
	}
	response, err := call(request, http.StatusOK)
	if err != nil {
		return fmt.Errorf("watch pods: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := begun(); err != nil {
		return err
	}
	for events := json.NewDecoder(response.Body); ; {
		var raw struct {
			Type   string
			Object json.RawMessage
		}
		if err := events.Decode(&raw); err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
		event := PodEvent{Time: time.Now()}
		if raw.Type == "ERROR" {
			return fmt.Errorf("watch pods: %s", raw.Object)
		}
		if err := json.Unmarshal(raw.Object, &event.Pod); err != nil {
			return fmt.Errorf("watch pods: %w", err)
		}
		if each(event) {
			return nil
		}
	}
}

// call sends a request as an administrator. The caller closes the answer's body.
func call(request *http.Request, want int) (*http.Response, error) {
	request.Header.Set("Authorization", "Bearer "+adminToken)
	response, err := api.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != want {
		text, err := io.ReadAll(io.LimitReader(response.Body, 4096))
		return nil, errors.Join(fmt.Errorf("%s %s: %s: %s", request.Method, request.URL, response.Status, text), err, response.Body.Close())
	}
	return response, nil
}
