package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/hypervisor/memfile"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/pool"
)

// What is ordered, and how long after the first container's start.
func TestStockOrders(t *testing.T) {
	refuse := func(TemplateOrder) error { return errors.New("refused") }
	fill := func(s *stock) {
		name, err := pool.NameOf(s.platform.Owner.Address, sourceFile(s.config), s.home)
		if err := errors.Join(err, os.MkdirAll(filepath.Join(PoolDir(s.platform.RunDir).Dir, name+".ready"), 0o700)); err != nil {
			t.Error(err)
		}
	}
	for name, tt := range map[string]struct {
		missed factory.Key
		// change changes a stock that orders one spare.
		change func(*stock)
		// lives is how long the pod does after that start; 0: none of its containers starts.
		lives time.Duration
		want  []string
	}{
		"spare":                      {lives: time.Minute, want: []string{"spare at 500ms"}},
		"spare, another pause":       {lives: time.Minute, change: func(s *stock) { s.platform.RefillPause = time.Second }, want: []string{"spare at 1s"}},
		"spare, short pod":           {lives: time.Millisecond, want: []string{"spare at 1ms"}},
		"both":                       {missed: "t", lives: time.Minute, want: []string{"spare at 0s"}},
		"both, never started":        {missed: "t"},
		"both, no spares wanted":     {missed: "t", lives: time.Minute, change: func(s *stock) { s.config.Factory.VMs = 0 }, want: []string{"template t at 0s"}},
		"both, spare not started":    {missed: "t", lives: time.Minute, change: func(s *stock) { s.platform.StartSpare = refuse }, want: []string{"template t at 0s"}},
		"both, no spare missing":     {missed: "t", lives: time.Minute, change: fill, want: []string{"template t at 0s"}},
		"both, none can be made":     {missed: "t", lives: time.Minute, change: func(s *stock) { s.platform.StartSpare, s.platform.StartMaker = refuse, nil }},
		"both, home unknown":         {missed: "t", lives: time.Minute, change: func(s *stock) { s.home = nil }},
		"neither, no spares wanted":  {lives: time.Minute, change: func(s *stock) { s.config.Factory.VMs = 0 }},
		"neither, spare not started": {lives: time.Millisecond, change: func(s *stock) { s.platform.StartSpare = refuse }},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var began time.Time
				var got []string
				order := func(what string) { got = append(got, fmt.Sprintf("%s at %v", what, time.Since(began))) }
				platform := Platform{RunDir: dir, StartSpare: func(TemplateOrder) error { order("spare"); return nil }}
				platform.StartMaker = func(o TemplateOrder) (func(context.Context) error, error) {
					order("template " + string(o.Key))
					return func(context.Context) error { return nil }, nil
				}
				s := newStock(t.Context(), platform, &config.Config{Factory: config.Factory{Template: true, TemplatePath: filepath.Join(dir, "templates"), VMs: 1}})
				if tt.change != nil {
					tt.change(s)
				}
				ctx, end := context.WithCancel(t.Context())
				var filling sync.WaitGroup
				filling.Go(func() { s.fill(ctx, tt.missed) })
				time.Sleep(time.Minute)
				if began = time.Now(); tt.lives > 0 {
					s.begin()
					s.begin() // the second container's
					time.Sleep(tt.lives)
				}
				end()
				filling.Wait()
				s.settle(ctx)
				s.settle(ctx)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("-want +got: %s", diff)
				}
			})
		})
	}
}

// The memory of a template is kept if this process has copied it, once a container runs.
func TestStockKeeps(t *testing.T) {
	memory, err := memfile.Blank("memory", 4096)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	copied := ofTemplate{key: "t", copied: &factory.Lent{File: memory, Copied: true}}
	for name, tt := range map[string]struct {
		from    ofTemplate
		change  func(*stock)
		starts  bool
		ordered bool
	}{
		"copied":                 {from: copied, starts: true, ordered: true},
		"copied, never started":  {from: copied},
		"copied, home unknown":   {from: copied, starts: true, change: func(s *stock) { s.home = nil }},
		"copied, no keepers":     {from: copied, starts: true, change: func(s *stock) { s.platform.StartKeeper = nil }},
		"found with another one": {from: ofTemplate{key: "t"}, starts: true},
		"booted":                 {starts: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "templates")
			var got []KeepOrder
			platform := Platform{StartKeeper: func(o KeepOrder) error {
				if !sameFile(t, o.Memory, memory) {
					t.Error("it is other memory")
				}
				got = append(got, o)
				return nil
			}}
			platform.StartMaker = func(TemplateOrder) (func(context.Context) error, error) { return nil, errdefs.ErrUnavailable }
			s := newStock(t.Context(), platform, &config.Config{Factory: config.Factory{Template: true, TemplatePath: dir}})
			if tt.change != nil {
				tt.change(s)
			}
			ctx, end := context.WithCancel(t.Context())
			if tt.starts {
				s.begin()
			}
			end()
			s.keep(ctx, tt.from)
			if ordered := len(got) == 1 && got[0].Store.Dir == dir && got[0].Key == "t" && string(got[0].Home) == string(s.home); ordered != tt.ordered {
				t.Errorf("ordered %+v", got)
			}
		})
	}
}

func sameFile(t *testing.T, a, b *os.File) bool {
	t.Helper()
	one, err := a.Stat()
	other, otherErr := b.Stat()
	if err := errors.Join(err, otherErr); err != nil {
		t.Fatal(err)
	}
	return os.SameFile(one, other)
}
