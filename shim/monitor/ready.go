package monitor

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/katabox/katabox/virtcontainers/persist"
)

// readyTimeout bounds the question whether a monitor is ready.
const readyTimeout = 4 * time.Second

// healthz answers with 200 if the records of pods can be listed. It asks no pod.
func (m *Monitor) healthz(w http.ResponseWriter, _ *http.Request) {
	if _, err := persist.List(m.root); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "ok")
}

// Ready asks the monitor that listens on an address, HOST:PORT, whether it can list
// the pods. It takes 4 s at most.
func Ready(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", http.NoBody)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the monitor at %s is not ready: %s: %s", address, resp.Status, reason(answer))
	}
	return nil
}
