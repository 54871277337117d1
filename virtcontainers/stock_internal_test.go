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

	"github.com/google/go-cmp/cmp"

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
