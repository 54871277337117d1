package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/katabox/katabox/tests/harness"
)

// startTimeout bounds the start of the pods and of Prometheus together.
const startTimeout = 20 * time.Minute

type options struct {
	prometheus, dashboard, out string
	lasting                    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.prometheus, "prometheus", "/usr/bin/prometheus", "Prometheus's program")
	flag.StringVar(&o.dashboard, "dashboard", "deploy/grafana-dashboard.json", "the dashboard")
	flag.StringVar(&o.out, "out", "docs/dashboard.svg", "the picture")
	flag.DurationVar(&o.lasting, "for", 10*time.Minute, "how long to scrape")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	b, err := readBoard(o.dashboard)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout+o.lasting)
	defer cancel()
	layout, err := harness.FindLayout()
	if err != nil {
		return err
	}
	release, err := harness.FindRelease(layout, "2.4")
	if err != nil {
		return err
	}
	d, err := harness.Start(ctx, harness.Options{Layout: layout, Release: release, Runtime: harness.Kata})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop(context.WithoutCancel(ctx))) }()
	pods, err := startPods(ctx, d)
	defer func() { err = errors.Join(err, pods.remove(context.WithoutCancel(ctx))) }()
	if err != nil {
		return err
	}
	p, err := startPrometheus(ctx, d, o.prometheus, pods.names(d))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop(context.WithoutCancel(ctx))) }()
	fmt.Printf("scraping for %s, below %s\n", o.lasting, d.Dir)
	began := time.Now()
	if err := pods.probe(ctx, o.lasting); err != nil {
		return err
	}
	picture, err := b.draw(ctx, p, began, time.Now())
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(o.out, []byte(picture), 0o644)
}
