package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/shim/client"
	"github.com/katabox/katabox/virtcontainers/timeline"
)

const timelineDescription = "ID is the pod's id (that of its pause container, or of its only container), or a prefix of it. The pod must be running.\n" +
	"The drawing has a part for the pod's boot and one for each container, each with its own scale. Times count from\n" +
	"the engine's call. Times inside the guest are as the guest reports them."

func timelineCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "timeline", Usage: "draw how a pod and its containers started", ArgsUsage: "ID", Description: timelineDescription,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "trace", Usage: "write a trace for ui.perfetto.dev or chrome://tracing to `FILE`"},
			&cli.StringFlag{Name: "svg", Usage: "write the drawing as an SVG to `FILE`"},
			jsonFlag(),
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			if c.NArg() != 1 {
				return fmt.Errorf("want one pod's id: see %s --help", c.FullName())
			}
			t, err := h.timeline(ctx, c.Args().First())
			if err != nil {
				return err
			}
			if err := errors.Join(writeFile(c.String("trace"), t.WriteTrace), writeFile(c.String("svg"), t.WriteSVG)); err != nil {
				return err
			}
			out := c.Root().Writer
			if c.Bool("json") {
				return writeJSON(out, t)
			}
			return t.WriteText(out, terminal(out))
		},
	}
}

// timelineTimeout bounds the request to a pod, which includes a call to the
// guest.
const timelineTimeout = 20 * time.Second

// askTimeline asks the shim of a running pod for its timeline.
func askTimeline(ctx context.Context, id string) (*timeline.Timeline, error) {
	ctx, cancel := context.WithTimeout(ctx, timelineTimeout)
	defer cancel()
	shim, err := client.ConnectSandbox(ctx, filepath.Join(runDir, "sandboxes"), id)
	if err != nil {
		return nil, err
	}
	t, err := shim.Timeline(ctx)
	return t, errors.Join(err, shim.Close())
}

// writeFile writes a file, or, with an empty path, nothing.
func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// terminal returns how to draw on an output: without colours if it is not a
// terminal.
func terminal(out io.Writer) timeline.TextOptions {
	plain := timeline.TextOptions{Width: 100}
	f, ok := out.(*os.File)
	if !ok {
		return plain
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil || size.Col == 0 {
		return plain
	}
	return timeline.TextOptions{Width: int(size.Col), Blocks: true}
}
