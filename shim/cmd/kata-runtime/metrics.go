package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/signal"
	"syscall"

	"github.com/containerd/log"
	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/monitor"
)

const metricsDescription = "ID is the pod's id, or a prefix of it. The metrics are in Prometheus's text format. With --all and with --json each has labels\n" +
	"with its pod's id and name. Metrics that begin with kata_guest_ or kata_agent_ are as the guest reports them.\n" +
	"docs/observability.md has the list."

func metricsCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "metrics", Usage: "print the metrics of one pod, or of all pods", ArgsUsage: "ID | --all", Description: metricsDescription,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Usage: "the metrics of all pods, each labelled with its pod"}, jsonFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			all := c.Bool("all")
			if all == (c.NArg() == 1) || c.NArg() > 1 {
				return fmt.Errorf("want one pod's id, or --all: see %s --help", c.FullName())
			}
			if all {
				pods, err := monitor.Pods(h.records)
				if err != nil {
					return err
				}
				return scrape(ctx, c, pods)
			}
			pod, err := monitor.Find(h.records, c.Args().First())
			if err != nil {
				return err
			}
			if c.Bool("json") {
				return scrape(ctx, c, []monitor.Pod{pod})
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

// scrape writes the labelled metrics of the pods that answer, and then fails if
// other pods did not answer.
func scrape(ctx context.Context, c *cli.Command, pods []monitor.Pod) error {
	families, errs := monitor.Scrape(ctx, pods)
	write := families.Write
	if c.Bool("json") {
		write = func(w io.Writer) error { return writeJSON(w, families) }
	}
	return errors.Join(write(c.Root().Writer), oneOf(errs, len(pods)))
}

// oneOf combines the errors of some of the pods into one line.
func oneOf(errs []error, all int) error {
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d pods did not answer: %w", len(errs), all, errs[0])
}

const monitorDescription = "It serves /metrics (the metrics of all pods, with the labels sandbox_id, cri_uid, cri_name and cri_namespace), /sandboxes (the\n" +
	"pods' ids) and /healthz, which fails if the pods cannot be listed. A pod that does not answer within 4 s is left out of a\n" +
	"scrape. There is no authentication: use an address other than the host's loopback only in a network that you trust.\n" +
	"SIGTERM ends it."

func monitorCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "monitor", Usage: "serve the metrics of all pods of this host to Prometheus", Description: monitorDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "listen", Value: "127.0.0.1:8090", Usage: "the `ADDRESS` to listen on, as HOST:PORT"},
			&cli.BoolFlag{Name: "ready", Usage: "only ask the monitor that listens there whether it can list the pods: exits with 0 if it can, with 1 if not"},
		},
		Before: noArguments,
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.Bool("ready") {
				return monitor.Ready(ctx, c.String("listen"))
			}
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
