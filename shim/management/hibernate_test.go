package management

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/virtcontainers"
)

var saved = virtcontainers.Hibernation{Since: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), MemoryBytes: 212 << 20, ImageBytes: 61 << 20}

// Hibernate succeeds if it is given the time that a large guest takes.
func (p pod) Hibernate(ctx context.Context) (virtcontainers.Hibernation, error) {
	if err := p.Wake(ctx); err != nil {
		return virtcontainers.Hibernation{}, err
	}
	return saved, nil
}

func (p pod) Wake(ctx context.Context) error {
	if end, _ := ctx.Deadline(); time.Until(end) < HibernateTimeout-time.Minute {
		return fmt.Errorf("the request ends at %v", end)
	}
	return p.sleepErr
}

func post(t *testing.T, client *http.Client, path string) (int, string) {
	t.Helper()
	resp, err := client.Post("http://shim"+path, "", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func TestHibernate(t *testing.T) {
	_, client := serve(t, Source{Sandbox: pod{}})
	var got virtcontainers.Hibernation
	if code, body := post(t, client, HibernatePath); code != 200 || json.Unmarshal([]byte(body), &got) != nil || got != saved {
		t.Errorf("hibernate: %d, %s", code, body)
	}
	if code, body := post(t, client, WakePath); code != 200 || body != "" {
		t.Errorf("wake: %d, %q", code, body)
	}
	for _, path := range []string{HibernatePath, WakePath} {
		if code, body := get(t, client, path); code != 405 || !strings.Contains(body, "only POST is answered at "+path) {
			t.Errorf("GET %s: %d, %q", path, code, body)
		}
	}
}

func TestHibernateRefused(t *testing.T) {
	for _, test := range []struct {
		kind error
		code int
	}{
		{errdefs.ErrFailedPrecondition, 409}, {errdefs.ErrUnavailable, 503}, {errdefs.ErrNotImplemented, 501},
		{context.DeadlineExceeded, 503}, {errors.New("the disk is full"), 500},
	} {
		_, client := serve(t, Source{Sandbox: pod{sleepErr: fmt.Errorf("no: %w", test.kind)}})
		for _, path := range []string{HibernatePath, WakePath} {
			if code, body := post(t, client, path); code != test.code || body != "no: "+test.kind.Error()+"\n" {
				t.Errorf("%s, %v: %d, %q, want %d", path, test.kind, code, body, test.code)
			}
		}
	}
}
