package service

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/iptables"
)

// untold is a Children that need not be told: nothing reaps here.
type untold struct{}

func (untold) Begin() func(int) { return func(int) {} }
func (untold) Done(int)         {}

// fakeTables are tools that keep their rules in files.
func fakeTables(t *testing.T) *iptables.Tools {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"iptables", "ip6tables"} {
		file := filepath.Join(dir, name)
		for verb, script := range map[string]string{
			"save": "cat FILE",
			"restore": `cat > FILE.new
				[ "$(tail -n 1 FILE.new)" = COMMIT ] || { echo "COMMIT expected at line 2" >&2; exit 1; }
				mv FILE.new FILE`,
		} {
			if err := os.WriteFile(file+"-"+verb, []byte("#!/bin/sh\n"+strings.ReplaceAll(script, "FILE", file)+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	return &iptables.Tools{Children: untold{}, Dirs: []string{dir}}
}

// A guest without its pod has no rules, and one without the tools says so.
func TestIPTablesRefused(t *testing.T) {
	pod, _ := testPod(t)
	pod.config.Tables = &iptables.Tools{Children: untold{}, Dirs: []string{t.TempDir()}}
	s := guestService{pod: pod}
	for _, test := range []struct {
		at stage
		is func(error) bool
	}{{ready, errdefs.IsNotImplemented}, {bare, errdefs.IsFailedPrecondition}} {
		pod.stage = test.at
		_, get := s.GetIPTables(t.Context(), &api.GetIPTablesRequest{})
		_, set := s.SetIPTables(t.Context(), &api.SetIPTablesRequest{})
		if !test.is(errgrpc.ToNative(get)) || !test.is(errgrpc.ToNative(set)) {
			t.Errorf("stage %d: %v, %v", test.at, get, set)
		}
	}
}
