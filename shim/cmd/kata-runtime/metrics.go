package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/signal"
	"syscall"

	"github.com/containerd/log"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/monitor"
)

const metricsDescription = "ID is the pod's id, or a prefix of it. The metrics are in Prometheus's text format; with --all each has its pod's id and\n" +
	"name. Metrics that begin with kata_guest_ or kata_agent_ are as the guest reports them. docs/observability.md has the list."

func metricsCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "metrics", Usage: "write the metrics of one pod, or of all pods", ArgsUsage: "ID | --all", Description: metricsDescription,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "the metrics of all pods, each labelled with its pod"}},
		Action: func(ctx context.Context, c *cli.Command) error {
			all := c.Bool("all")
			if all == (c.NArg() == 1) || c.NArg() > 1 {
				return fmt.Errorf("want one pod's id, or --all: see %s --help", c.FullName())
			}
			if all {
				return h.allMetrics(ctx, c)
			}
			pod, err := monitor.Find(h.records, c.Args().First())
			if err != nil {
				return err
			}
			text, err := pod.Ask(ctx, "/metrics")
			if err != nil {
				return err
			}
			_, err = c.Root().Writer.Write(text)
			return err
		},
	}
}

// allMetrics writes the metrics of the pods that answer, and then fails if other
// pods did not answer.
func (h host) allMetrics(ctx context.Context, c *cli.Command) error {
	pods, err := monitor.Pods(h.records)
	if err != nil {
		return err
	}
	families, errs := monitor.Scrape(ctx, pods)
	return errors.Join(families.Write(c.Root().Writer), oneOf(errs, len(pods)))
}

// oneOf combines the errors of some of the pods into one line.
func oneOf(errs []error, all int) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d pods did not answer: %w", len(errs), all, errs[0])
}

const monitorDescription = "It serves /metrics, the metrics of all pods with the labels sandbox_id, cri_uid, cri_name and cri_namespace, and\n" +
	"/sandboxes, the pods' ids. A pod that does not answer within 4 s is left out of a scrape. There is no authentication:\n" +
	"use an address other than the host's loopback only in a network that you trust. SIGTERM ends it."

func monitorCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "monitor", Usage: "serve the metrics of all pods of this host to Prometheus", Description: monitorDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8090", Usage: "the `ADDRESS` to listen on, as HOST:PORT"},
		},
		Before: noArguments,
		Action: func(ctx context.Context, c *cli.Command) error {
			ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.String("listen"))
			if err != nil {
				return fmt.Errorf("%w: choose another address with --listen", err)
			}
			log.G(ctx).Infof("serving metrics at http://%s/metrics", l.Addr())
			return monitor.New(h.records).Serve(ctx, l)
		},
	}
}
