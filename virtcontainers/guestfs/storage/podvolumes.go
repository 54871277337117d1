package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/intime"
	"github.com/katabox/katabox/virtcontainers/guestspec"
)

// podVolumesName is the share's directory for the directories of the host that the
// pod's containers have mounted. No container can have that id.
var podVolumesName = path.Base(api.GuestPodVolumesDir)

// podVolumes are those directories, each bound in the share once. In the guest each
// bind is a file system: a UNIX socket, a FIFO or a lock of one container is the
// others' too if they have the same.
type podVolumes struct {
	mu   sync.Mutex // guards what follows, and users and writable of each volume
	list []*podVolume
	// last is the highest number so far: the guest may remember what had one.
	last int
}

// podVolume is one bind. It is in the share from when its first user has it made until
// its last one is removed.
type podVolume struct {
	identity
	number int
	// users are the ids of the containers that have it, each with whether the guest
	// has it mounted for that container, and keeps it so.
	users map[string]bool
	// writable is set when a container may write to it: until then the host refuses
	// writes.
	writable bool
	// ready is closed when it was made, or could not be; err is written before.
	ready chan struct{}
	err   error
}

// highestNumber bounds the numbers that a checkpoint may request.
const highestNumber = 1 << 30

// name is the volume's name in the share.
func (v *podVolume) name() string { return path.Join(podVolumesName, strconv.Itoa(v.number)) }

// claim makes a container a user of the volume of that identity; if mine is true, the
// caller must make it and then call settle. A number other than 0 must be the volume's.
func (p *podVolumes) claim(id identity, user string, number int) (v *podVolume, mine bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.list {
		if v.identity == id && (number == 0 || v.number == number) {
			v.users[user] = false
			return v, false, nil
		}
		if v.number == number {
			return nil, false, fmt.Errorf("number %d is another directory's: %w", number, errdefs.ErrInvalidArgument)
		}
	}
	if number == 0 {
		number = p.last + 1
	}
	v = &podVolume{identity: id, number: number, users: map[string]bool{user: false}, ready: make(chan struct{})}
	p.last = max(p.last, number)
	p.list = append(p.list, v)
	return v, true, nil
}

// settle records whether a volume was made, and wakes those who wait for it. One that
// could not be made may be tried again.
func (p *podVolumes) settle(v *podVolume, err error) {
	v.err = err
	if err != nil {
		p.mu.Lock()
		p.list = slices.DeleteFunc(p.list, func(of *podVolume) bool { return of == v })
		p.mu.Unlock()
	}
	close(v.ready)
}

// leave ends a container's use of its volumes, and returns those that have no user
// left, which the caller removes.
func (p *podVolumes) leave(user string) (unused []*podVolume) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(v *podVolume) bool {
		_, used := v.users[user]
		delete(v.users, user)
		if used && len(v.users) == 0 {
			unused = append(unused, v)
		}
		return used && len(v.users) == 0
	})
	return unused
}

// setMounted records whether the guest has a container's volumes mounted and keeps them.
func (p *podVolumes) setMounted(user string, mounted bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.list {
		if _, used := v.users[user]; used {
			v.users[user] = mounted
		}
	}
}

// unmounted returns the names of a container's volumes that the guest may unmount with
// it. If two containers are removed at once, the later call returns the volumes of both.
func (p *podVolumes) unmounted(user string) (names []string) {
	p.setMounted(user, false)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.list {
		_, used := v.users[user]
		if used && !slices.Contains(slices.Collect(maps.Values(v.users)), true) {
			names = append(names, v.name())
		}
	}
	return names
}

// Created records that the guest has made a container, with its volumes mounted.
func (s *Share) Created(id string) { s.volumes.setMounted(id, true) }

// AddVolumes puts directories of the host that a container mounts into the share, each
// once for all of the pod's containers, and returns where the guest finds them. What
// must be the container's alone is in rest: files, and mounts whose owners are mapped.
// RemoveContainer ends the container's use. On an error nothing is left of it.
func (s *Share) AddVolumes(ctx context.Context, id string, binds []guestspec.Bind) (placed []guestspec.Placed, rest []guestspec.Bind, err error) {
	if err := s.checkOpen(); err != nil {
		return nil, nil, fmt.Errorf("share mount: %w", err)
	}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
			defer cancel()
			err = errors.Join(err, s.removeVolumes(ctx, s.volumes.leave(id)))
		}
	}()
	var mounts hostMounts
	for _, b := range binds {
		if b.IDMap != nil || b.Name != "" && !b.OfPod {
			rest = append(rest, b)
			continue
		}
		if mounts == nil {
			if mounts, err = intime.Call(ctx, readHostMounts, nil); err != nil {
				return nil, nil, fmt.Errorf("share mount: %w", err)
			}
		}
		one, err := s.addVolume(ctx, id, b, mounts)
		switch {
		case errors.Is(err, errNotCommon):
			rest = append(rest, b)
		case err != nil:
			return nil, nil, fmt.Errorf("share mount: bind %s: %w", b.Source, err)
		default:
			placed = append(placed, one)
		}
	}
	return placed, rest, nil
}

// addVolume makes a container a user of one volume.
func (s *Share) addVolume(ctx context.Context, user string, b guestspec.Bind, mounts hostMounts) (guestspec.Placed, error) {
	source, err := intime.Call(ctx, func() (*identified, error) { return mounts.open(b) }, func(source *identified) { source.drop() })
	if err != nil {
		return guestspec.Placed{}, err
	}
	defer source.drop()
	placed := guestspec.Placed{Bind: b, Writable: source.id.access == accessTop, Flags: source.flags}
	v, err := s.useVolume(ctx, source.id, user, b, source.File)
	if err == nil && !b.ReadOnly {
		err = s.makeWritable(ctx, v)
	}
	if err != nil {
		return guestspec.Placed{}, err
	}
	s.specials.allow(v.name(), b)
	placed.At = path.Join(api.GuestSharedDir, v.name())
	return placed, nil
}

// useVolume finds the volume of an identity, or makes it as b requests it. If the
// container that is making it fails, the next one tries.
func (s *Share) useVolume(ctx context.Context, id identity, user string, b guestspec.Bind, source *os.File) (*podVolume, error) {
	number, err := numberOf(b)
	if err != nil {
		return nil, err
	}
	for {
		v, mine, err := s.volumes.claim(id, user, number)
		if err != nil {
			return nil, err
		}
		if mine {
			err := s.makeVolume(ctx, v, b, source)
			s.volumes.settle(v, err)
			return v, err
		}
		select {
		case <-v.ready:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the container that has it bound: %w", context.Cause(ctx))
		}
		if v.err == nil {
			return v, nil
		}
	}
}

// numberOf returns the number that a volume must have, 0 for any.
func numberOf(b guestspec.Bind) (int, error) {
	if b.Name == "" {
		return 0, nil
	}
	number, err := strconv.Atoi(b.Name)
	if err != nil || number < 1 || number > highestNumber {
		return 0, fmt.Errorf("the number %q of a volume is not between 1 and %d: %w", b.Name, highestNumber, errdefs.ErrInvalidArgument)
	}
	return number, nil
}

// makeVolume binds a volume's source, at which its identity was read. On an error
// nothing is left.
func (s *Share) makeVolume(ctx context.Context, v *podVolume, b guestspec.Bind, source *os.File) error {
	tree, err := cloneOf(source, b.Recursive)
	if err != nil {
		return err
	}
	if err := s.space.bindTree(ctx, tree, path.Join(pointsDir, v.name()), s.dir(v.name()), b); err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWait)
		defer cancel()
		return errors.Join(err, s.removeVolumes(ctx, []*podVolume{v}))
	}
	s.volumes.mu.Lock()
	defer s.volumes.mu.Unlock()
	v.writable = !b.ReadOnly
	return nil
}

// makeWritable has the host allow writes to a volume. It stays so: a container that may
// not write has a read-only mount in the guest.
func (s *Share) makeWritable(ctx context.Context, v *podVolume) error {
	s.volumes.mu.Lock()
	done := v.writable || v.readOnly()
	s.volumes.mu.Unlock()
	if done {
		return nil
	}
	if err := s.space.makeWritable(ctx, s.dir(v.name())); err != nil {
		return fmt.Errorf("allow writes: %w", err)
	}
	s.volumes.mu.Lock()
	defer s.volumes.mu.Unlock()
	v.writable = true
	return nil
}

// removeVolumes removes volumes that have no user.
func (s *Share) removeVolumes(ctx context.Context, unused []*podVolume) error {
	if len(unused) == 0 {
		return nil
	}
	err := s.space.do(ctx, func() error {
		var errs []error
		for _, v := range unused {
			errs = append(errs, unmountAll(s.dir(v.name())), os.RemoveAll(path.Join(pointsDir, v.name())))
		}
		return errors.Join(errs...)
	})
	if s.closed.Load() {
		return nil // Close removes them
	}
	names := make([]string, len(unused))
	for i, v := range unused {
		names[i] = v.name()
		s.specials.forget(v.name())
	}
	s.drop(ctx, names...)
	return err
}
