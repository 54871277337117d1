package guestfs

import (
	"context"
	"path"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guestfs/volume"
	"github.com/katabox/katabox/virtcontainers/reverse"
)

// overflowID is an id that a user namespace does not map (user_namespaces(7)).
const overflowID = 65534

// forwardSocket makes a UNIX socket in the guest whose connections go to the
// host's socket while the container exists, and returns its path.
func (c *Container) forwardSocket(ctx context.Context, v volume.Volume) (string, error) {
	at := path.Join(api.GuestSocketDir, c.pod.volumes.number())
	l, err := reverse.ListenSocket(ctx, c.pod.guest.Reverse, reverse.Socket{
		Path: v.Source, ByPath: v.Bind.Socket, Seqpacket: v.Socket.Seqpacket, As: hostUser(c.Bundle.Spec),
	}, &api.UnixSocket{
		Path: at, Seqpacket: v.Socket.Seqpacket, Mode: v.Socket.Mode, Uid: v.Socket.UID, Gid: v.Socket.GID,
	})
	if err != nil {
		return "", err
	}
	c.later(func(context.Context) error { return l.Close() })
	return at, nil
}

// hostUser returns the host's user for a container's process: the one that a
// server on the host would see if the container were a process of the host. It
// comes from the spec, because the guest is not trusted.
func hostUser(spec *specs.Spec) reverse.User {
	if spec.Process == nil {
		return reverse.User{UID: overflowID, GID: overflowID}
	}
	var uids, gids []specs.LinuxIDMapping
	if spec.Linux != nil {
		uids, gids = spec.Linux.UIDMappings, spec.Linux.GIDMappings
	}
	user := reverse.User{UID: hostID(uids, spec.Process.User.UID), GID: hostID(gids, spec.Process.User.GID)}
	for _, gid := range spec.Process.User.AdditionalGids {
		user.Groups = append(user.Groups, hostID(gids, gid))
	}
	return user
}

// hostID maps a container's id to the host's; without mappings it is the same.
func hostID(mappings []specs.LinuxIDMapping, id uint32) uint32 {
	for _, m := range mappings {
		if id >= m.ContainerID && id-m.ContainerID < m.Size {
			return m.HostID + (id - m.ContainerID)
		}
	}
	if len(mappings) == 0 {
		return id
	}
	return overflowID
}
