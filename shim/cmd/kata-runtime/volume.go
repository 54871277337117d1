package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"
)

const volumeUsage = "give pods a volume as a disk, in place of the host's files (for storage drivers)"

const volumeDescription = "A container's mount of a volume's path becomes the file system on a device or in a file of the host,\n" +
	"mounted in the guest. This applies to containers created from then on, until the volume is removed.\n" +
	"Statistics and resizing of such a volume are not implemented yet."

const addDescription = "JSON has the keys device (a block device or file, with its file system on it), fstype (ext4, xfs, ...),\n" +
	"options (a list, as mount's -o), volume-type (block or directvol) and metadata (fsGroup, fsGroupChangePolicy):\n" +
	`  kata-runtime direct-volume add --volume-path /var/lib/kubelet/pods/UID/volumes/kubernetes.io~csi/PV/mount \` + "\n" +
	`    --mount-info '{"volume-type": "block", "device": "/dev/sdf", "fstype": "ext4", "metadata": {"fsGroup": "1000"}}'`

func volumeCommand(h host) *cli.Command {
	return &cli.Command{
		Name: "direct-volume", Usage: volumeUsage, Description: volumeDescription,
		HideHelpCommand: true, Action: noVolumeCommand,
		Commands: []*cli.Command{
			{
				Name: "add", Usage: "assign a disk to a volume's path, in place of an earlier one", Description: addDescription,
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
				Name: "remove", Usage: "forget a volume's disk; it is not an error if there is none",
				Flags:  []cli.Flag{volumePathFlag()},
				Before: noArguments,
				Action: func(_ context.Context, c *cli.Command) error { return h.volumes.Remove(c.String("volume-path")) },
			},
		},
	}
}

func volumePathFlag() cli.Flag {
	return &cli.StringFlag{Name: "volume-path", Usage: "the `PATH` that containers mount: CSI's target path", Required: true}
}

// noVolumeCommand handles a missing or unknown command of direct-volume.
func noVolumeCommand(_ context.Context, c *cli.Command) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown command %q: want direct-volume add or remove", c.Args().First())
	}
	return cli.ShowSubcommandHelp(c)
}
