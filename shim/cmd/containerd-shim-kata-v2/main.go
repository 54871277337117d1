// Command containerd-shim-kata-v2 is containerd's runtime
// io.containerd.kata.v2: it runs each pod in a lightweight virtual machine. Engines
// call it; see package shim/manager.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/shim/cmd/internal/platform"
	"github.com/katabox/katabox/shim/maker"
	"github.com/katabox/katabox/shim/manager"
	"github.com/katabox/katabox/shim/spare"
	"github.com/katabox/katabox/virtcontainers"
)

// version is set by the linker.
var version = "development"

func main() {
	err := run(context.Background(), os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == maker.Command {
		return maker.Run(ctx, args[1:], platform.Host(ctx))
	}
	if len(args) > 0 && args[0] == maker.KeeperCommand {
		return maker.Keep(ctx, args[1:])
	}
	if len(args) > 0 && args[0] == maker.SpareCommand {
		return spare.Run(ctx, args[1:], host)
	}
	p, err := manager.ParseArgs(args, os.Getenv)
	if err != nil {
		return err
	}
	switch {
	case p.Version:
		fmt.Printf("%s %s\n", filepath.Base(os.Args[0]), version)
		return nil
	case p.Info:
		return manager.Info(version, os.Stdout)
	case p.Action == manager.ActionFeatures:
		return manager.Features(os.Stdout)
	case p.Action == manager.ActionStart:
		p.Pool = virtcontainers.PoolDir(platform.RunDir)
		manager.Sweep(ctx, p, platform.Leftovers())
		return manager.Start(p, os.Stdin, os.Stdout)
	case p.Action == manager.ActionDelete:
		return manager.Delete(p, platform.Leftovers(), os.Stdout)
	}
	ctx, err = manager.OpenLog(ctx, p)
	if err != nil {
		return err
	}
	return manager.Serve(ctx, p, host(ctx))
}

// host is the host of a shim, which has templates and spares made.
func host(ctx context.Context) virtcontainers.Platform {
	h := platform.Host(ctx)
	h.StartMaker, h.StartSpare, h.StartKeeper = maker.Start, maker.StartSpare, maker.StartKeeper
	return h
}
