package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v3"
)

const volumeUsage = "give pods a volume as a disk, in place of the host's files (for storage drivers)"

const volumeDescription = "A container's mount of a volume's path becomes the file system on a device or in a file of the host,\n" +
	"mounted in the guest. That holds for containers that are made from then on, until the volume is removed.\n" +
	"The size and use of such a volume (stats, resize) are not there yet."

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
				Name: "add", Usage: "assign a disk to a volume's path; what was assigned to it is replaced", Description: addDescription,
				Flags: []cli.Flag{
					volumePathFlag(),
					&cli.StringFlag{Name: "mount-info", Usage: "what is on it, as `JSON`", Required: true},
				},
				Before: noArguments,
				Action: func(_ context.Context, c *cli.Command) error {
					return h.volumes.Add(c.String("volume-path"), []byte(c.String("mount-info")))
				},
			},
			{
				Name: "remove", Usage: "forget a volume's disk; one that is not there is no error",
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

// noVolumeCommand is called without a command of direct-volume's, or with an
// unknown one.
func noVolumeCommand(_ context.Context, c *cli.Command) error {
	if c.Args().Present() {
		return fmt.Errorf("unknown command %q: want direct-volume add or remove", c.Args().First())
	}
	return cli.ShowSubcommandHelp(c)
}
