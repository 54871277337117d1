package container

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/log"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
)

// podVolumes are the agent's mounts of the host's directories that containers have in
// common. The kernel mounts each when it is first accessed, in the mount namespace of
// that access: each container's is a copy of the agent's. Accessed first in those, a
// directory would be a separate file system in each, with separate sockets and locks.
//
// A volume is mounted from when its first container is made until its last one is
// removed. The zero value has none.
type podVolumes struct {
	mu   sync.Mutex // guards used, and the users of each
	used map[string]*podVolume
}

// podVolume is one of them. ready is closed when fd, which has its mount open (O_PATH),
// or err is written.
type podVolume struct {
	users int
	ready chan struct{}
	fd    int
	err   error
}

// enter mounts the volumes among a container's mounts, unless they are, and returns
// their paths, for leave. It blocks while the host does not answer. Those that the
// container wants propagation for, and the guest's own volumes likewise, get it.
func (p *podVolumes) enter(mounts []specs.Mount) (paths []string, err error) {
	for i := range mounts {
		m := &mounts[i]
		common := strings.HasPrefix(m.Source, api.GuestPodVolumesDir+"/")
		if common {
			if err = p.enterOne(m.Source); err == nil {
				paths = append(paths, m.Source)
			}
		}
		if err == nil && wantsPropagation(m) {
			if !common {
				common, err = isMemoryVolume(m.Source, mountTable)
			}
			if common && err == nil {
				err = propagateIn(m.Source)
			}
		}
		if err != nil {
			p.leave(paths, passBarriers)
			return nil, err
		}
	}
	return paths, nil
}

func wantsPropagation(m *specs.Mount) bool {
	return isBind(m) && hasOption(m, "shared", "rshared", "slave", "rslave")
}

// mountTable is the agent's (proc(5)).
const mountTable = "/proc/thread-self/mountinfo"

// isMemoryVolume reports whether a source is a volume in the guest's memory. A disk's is
// none: with a mount of a container below it, it could not be unmounted. It asks the table
// of mounts alone: what a container may have mounted on the volume need not answer.
func isMemoryVolume(source, table string) (bool, error) {
	if filepath.Dir(source) != api.GuestFilesDir {
		return false, nil
	}
	text, err := os.ReadFile(table)
	if err != nil {
		return false, fmt.Errorf("find volume %s among the mounts: %w", source, err)
	}
	for line := range strings.Lines(string(text)) {
		mount, fs, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(mount); len(fields) > 4 && fields[4] == source {
			return strings.HasPrefix(fs, "tmpfs "), nil // the first; later ones are on it
		}
	}
	return false, nil
}

// propagateIn makes the agent's mount of a volume shared, so that what a container with
// rshared mounts there appears in the pod's other containers with rshared or rslave.
// Their mounts are copies of the agent's: of one peer group, or its slaves
// (mount_namespaces(7)).
func propagateIn(volume string) error {
	err := unix.Mount("", volume, "", unix.MS_SHARED, "")
	// EINVAL: it is no mount, if the share's server announces none.
	if err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("make the pod's volume %s shared: %w", volume, err)
	}
	return nil
}

func (p *podVolumes) enterOne(at string) error {
	p.mu.Lock()
	v := p.used[at]
	mine := v == nil
	if mine {
		if p.used == nil {
			p.used = map[string]*podVolume{}
		}
		v = &podVolume{ready: make(chan struct{}), fd: -1}
		p.used[at] = v
	}
	v.users++
	p.mu.Unlock()
	if mine {
		v.fd, v.err = unix.Open(at, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		close(v.ready)
	}
	<-v.ready
	if v.err != nil {
		p.take([]string{at}, true)
		return fmt.Errorf("mount the pod's volume %s: %w", at, v.err)
	}
	return nil
}

// leave undoes enter: it unmounts the volumes that no other container has. The
// container's processes must have ended, and its mounts be gone. settled reports
// whether the host has answered what they have asked (passBarriers); if not, the
// volumes stay mounted until the guest ends, as those of mountNamespace.keep do.
func (p *podVolumes) leave(paths []string, settled func() bool) {
	if len(paths) == 0 {
		return
	}
	// Also if others have them: these may leave meanwhile.
	unmount := settled()
	for _, fd := range p.take(paths, unmount) {
		_ = unix.Close(fd) // the last use of its file system, unless KeepMounts holds it
	}
}

// take ends one use for each path. It takes the mounts of volumes without a user from
// the agent's namespace, so that the next user has a new one, and returns what holds
// them; if unmount is not set, both stay.
func (p *podVolumes) take(paths []string, unmount bool) (fds []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range paths {
		v := p.used[at]
		v.users--
		if v.users > 0 {
			continue
		}
		delete(p.used, at)
		if v.fd < 0 || !unmount {
			continue
		}
		// Not by its path: the host would be asked whether that is still the same. It
		// is no mount if the share's server announces none (EINVAL).
		err := unix.Unmount(fmt.Sprintf("/proc/self/fd/%d", v.fd), unix.MNT_DETACH)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			log.L.WithError(err).Warnf("the pod's volume %s stays mounted", at)
		}
		fds = append(fds, v.fd)
	}
	return fds
}
