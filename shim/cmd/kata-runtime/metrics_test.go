package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/shim/management"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/guest"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/persist"
	"github.com/katabox/katabox/virtcontainers/prom"
)

// onePod is a sandbox that answers.
type onePod struct{}

func (onePod) Ping(context.Context) error { return nil }

func (onePod) WriteMetrics(_ context.Context, t *prom.Text) {
	t.Single("kata_shim_agent_up", prom.Gauge, "Up.", 1)
}

func (onePod) OpenDebug(context.Context) (*guest.DebugConsole, error) {
	return nil, fmt.Errorf("no debug console: %w", errdefs.ErrFailedPrecondition)
}

func (onePod) Console() string { return "the guest's console\n" }

// VolumeStats and GrowVolume know the volume /v.
func (onePod) VolumeStats(_ context.Context, path string) (v guestfs.AssignedVolume, err error) {
	if path != "/v" {
		return v, errdefs.ErrNotFound
	}
	v.Bytes.Total = 7
	return v, nil
}

func (p onePod) GrowVolume(ctx context.Context, path string, size uint64) (uint64, error) {
	_, err := p.VolumeStats(ctx, path)
	return size, err
}

// IPTables returns rules that would clear a terminal.
func (onePod) IPTables(_ context.Context, ipv6 bool) ([]byte, error) {
	return fmt.Appendf(nil, "*filter\n# \x1b[2J IPv6 %t\nCOMMIT\n", ipv6), nil
}

// SetIPTables says what it was given.
func (onePod) SetIPTables(_ context.Context, ipv6 bool, rules []byte) error {
	return fmt.Errorf("iptables-restore: IPv6 %t, given %q", ipv6, rules)
}

func (onePod) Describe() virtcontainers.Description { return virtcontainers.Description{ID: "p1"} }

// withRecords is a host with a pod "p1" that answers and, if wanted, one that
// does not, "p2".
func withRecords(t *testing.T, silent bool) host {
	t.Helper()
	return withSandbox(t, onePod{}, silent)
}

// withSandbox is a host as withRecords', whose pod "p1" is that sandbox.
func withSandbox(t *testing.T, p1 management.Sandbox, silent bool) host {
	t.Helper()
	root, err := os.MkdirTemp("", "kb") //nolint:usetesting // t.TempDir gives names too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	self, err := persist.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{"p1"}
	if silent {
		ids = append(ids, "p2")
	}
	owner := persist.Owner{Namespace: "test"}
	for _, id := range ids {
		s, err := persist.Create(root, owner, id)
		if err == nil {
			err = s.Update(func(r *persist.Record) { r.Shim = self })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	server, err := management.Listen(t.Context(), filepath.Join(root, owner.Name("p1")), management.Source{Sandbox: p1, Calls: new(prom.Durations), Log: somethingLogged()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return host{records: root}
}

func TestMetricsCommand(t *testing.T) {
	h := withRecords(t, false)
	out, errs, code := call(t, h, "metrics", "p1")
	if code != 0 || errs != "" || !strings.Contains(out, "\nkata_shim_agent_up 1\n") {
		t.Errorf("%d, %q, %s", code, errs, out)
	}
	out, errs, code = call(t, h, "metrics", "--all")
	if code != 0 || errs != "" || !strings.Contains(out, `kata_shim_agent_up{cri_name="",cri_namespace="",cri_uid="",sandbox_id="p1"} 1`) {
		t.Errorf("%d, %q, %s", code, errs, out)
	}
}

func TestMetricsAsJSON(t *testing.T) {
	h := withRecords(t, false)
	for _, which := range []string{"p1", "--all"} {
		out, errs, code := call(t, h, "metrics", "--json", which)
		type sample struct {
			Labels map[string]string
			Value  float64
		}
		var families []struct {
			Name    string
			Samples []sample
		}
		if err := json.Unmarshal([]byte(out), &families); err != nil || code != 0 || errs != "" {
			t.Fatalf("%s: %v, %d, %q, %s", which, err, code, errs, out)
		}
		samples := make(map[string][]sample)
		for _, f := range families {
			samples[f.Name] = f.Samples
		}
		if up := samples["kata_shim_agent_up"]; len(up) != 1 || up[0].Value != 1 || up[0].Labels["sandbox_id"] != "p1" {
			t.Errorf("%s: %+v", which, up)
		}
	}
}

// A pod that does not answer is reported, after the metrics of the others.
func TestMetricsOfSilentPod(t *testing.T) {
	out, errs, code := call(t, withRecords(t, true), "metrics", "--all")
	if code != 1 || !strings.Contains(errs, "1 of 2 pods did not answer: ") || strings.Count(errs, "\n") != 1 || !strings.Contains(out, `sandbox_id="p1"`) {
		t.Errorf("%d, %q, %s", code, errs, out)
	}
}

func TestMetricsCommandRefuses(t *testing.T) {
	h := withRecords(t, false)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"metrics"}, "want one pod's id, or --all"},
		{[]string{"metrics", "p1", "p2"}, "want one pod's id, or --all"},
		{[]string{"metrics", "--all", "p1"}, "want one pod's id, or --all"},
		{[]string{"metrics", "p3"}, "no pod of that id runs"},
		{[]string{"monitor", "--listen", "nowhere"}, "choose another address with --listen"},
		{[]string{"monitor", "--ready", "--listen", "127.0.0.1:1"}, "127.0.0.1:1"},
		{[]string{"monitor", "x"}, "unexpected argument"},
	} {
		out, errs, code := call(t, h, test.args...)
		if code != 1 || out != "" || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%v: %d, %q, %q, want %q", test.args, code, out, errs, test.want)
		}
	}
}
