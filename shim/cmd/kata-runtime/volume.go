package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"

	"github.com/katabox/katabox/shim/monitor"
)

const volumeUsage = "attach volumes to pods as disks instead of sharing the host's files (for storage drivers)"

const volumeDescription = "Where a container mounts the volume's path, it gets the file system on a device or in a file of the host, which the guest\n" +
	"mounts. This applies to containers that are created from then on, until the volume is removed."

const addDescription = "JSON has the keys device (a block device or file, with its file system on it), fstype (ext4, xfs, ...),\n" +
	"options (a list, as mount's -o), volume-type (block or directvol) and metadata (fsGroup, fsGroupChangePolicy):\n" +
	`  kata-runtime direct-volume add --volume-path /var/lib/kubelet/pods/UID/volumes/kubernetes.io~csi/PV/mount \` + "\n" +
	`    --mount-info '{"volume-type": "block", "device": "/dev/sdf", "fstype": "ext4", "metadata": {"fsGroup": "1000"}}'`

const statsDescription = "A running container must have the volume. The answer is JSON, as CSI's NodeGetVolumeStatsResponse: usage in bytes\n" +
	"(unit 1) and inodes (unit 2), as the guest reports them, and volume_condition."

const resizeDescription = "A running container must have the volume, and can use it meanwhile. The driver enlarges a block device before; the file system\n" +
	"becomes as large as the device. A file is enlarged to N bytes. Without --size the volume grows to the current size of its\n" +
	"device or file. ext2, ext3, ext4 and xfs can grow; volumes never shrink."

func volumeCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "direct-volume", Usage: volumeUsage, Description: volumeDescription,
		HideHelpCommand: true, Action: noVolumeCommand,
		Commands: []*cli.Command{
			{
				Name: "add", Usage: "assign a disk to a volume's path; replaces an earlier one", Description: addDescription,
				Flags: []cli.Flag{
					volumePathFlag(),
					&cli.StringFlag{Name: "mount-info", Usage: "the disk's description, as `JSON`", Required: true},
				},
				Before: noArguments,
				Action: func(_ context.Context, c *cli.Command) error {
					return h.volumes.Add(c.String("volume-path"), []byte(c.String("mount-info")))
				},
			},
			{
				Name: "remove", Usage: "remove the assignment of a disk; not an error if there is none",
				Flags:  []cli.Flag{volumePathFlag()},
				Before: noArguments,
				Action: func(_ context.Context, c *cli.Command) error { return h.volumes.Remove(c.String("volume-path")) },
			},
			{
				Name: "stats", Usage: "print the size and use of a volume", Description: statsDescription,
				Flags:  []cli.Flag{volumePathFlag()},
				Before: noArguments, Action: h.volumeStats,
			},
			{
				Name: "resize", Usage: "make a volume larger", Description: resizeDescription,
				Flags: []cli.Flag{
					volumePathFlag(),
					&cli.Uint64Flag{Name: "size", Usage: "the size of the volume, `N` bytes"},
					jsonFlag(),
				},
				Before: noArguments, Action: h.volumeResize,
			},
		},
	}
}

func (h host) volumeStats(ctx context.Context, c *cli.Command) error {
	pods, err := monitor.Pods(h.records)
	if err != nil {
		return err
	}
	stats, err := monitor.VolumeStats(ctx, pods, c.String("volume-path"))
	if err != nil {
		return err
	}
	_, err = c.Root().Writer.Write(stats)
	return err
}

func (h host) volumeResize(ctx context.Context, c *cli.Command) error {
	pods, err := monitor.Pods(h.records)
	if err != nil {
		return err
	}
	path := c.String("volume-path")
	size, err := monitor.GrowVolume(ctx, pods, path, c.Uint64("size"))
	if err != nil {
		return err
	}
	if c.Bool("json") {
		return writeJSON(c.Root().Writer, map[string]any{"path": path, "bytes": size})
	}
	_, err = fmt.Fprintf(c.Root().Writer, "%s: %d bytes\n", path, size)
	return err
}

func volumePathFlag() cli.Flag {
	return &cli.StringFlag{Name: "volume-path", Usage: "the `PATH` that containers mount: CSI's target path", Required: true}
}

// noVolumeCommand handles a missing or unknown command of direct-volume.
func noVolumeCommand(_ context.Context, c *cli.Command) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown command %q: want direct-volume add, remove, stats or resize", c.Args().First())
	}
	return cli.ShowSubcommandHelp(c)
}
