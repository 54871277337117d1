package virtcontainers

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/guestfs"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// Spare is a machine that runs and whose agent has answered, but which belongs
// to no pod yet. One sandbox adopts it (Platform.Spare), or Close ends it.
type Spare struct {
	key factory.Key
	// pod is a sandbox that has done the machine's steps and no others.
	pod *Sandbox
	// mounted is set once the guest has mounted the share.
	mounted bool

	// left is closed when nothing of it is in its directory any more.
	left chan struct{}

	mu    sync.Mutex // guards taken
	taken bool
}

// MakeSpare starts a machine for sandboxes of this configuration: from its
// template if there is one. The record of what it has on the host is in dir,
// which may be missing, until a sandbox adopts it. ctx bounds the call. Nothing
// but dir is left on an error.
func MakeSpare(ctx context.Context, platform Platform, id string, cfg *config.Config, dir string) (*Spare, error) {
	s, err := barePod(ctx, platform, id, cfg)
	if err != nil {
		s.end()
		return nil, err
	}
	p := &Spare{pod: s, left: make(chan struct{})}
	if p.key, err = s.spareKey(); err == nil {
		s.platform.states = dir
		err = s.boot.run(ctx, p.steps())
	}
	s.judgeTemplate(ctx, err)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("start spare machine: %w", err)
	}
	return p, nil
}

// steps are the steps of a boot that need to know nothing of the pod.
func (p *Spare) steps() []step {
	b := p.pod.plan()
	b.share.do = p.pod.openSpareFiles
	warmUp := step{name: "warm-up", do: func(ctx context.Context) (err error) {
		p.mounted, err = p.pod.warmUp(ctx, false)
		return err
	}}
	return []step{b.state, b.share, b.user, b.vm, b.vsock, b.storage, b.hardware, b.resume, b.agent, warmUp}
}

// openSpareFiles opens the files of a machine without a pod.
func (s *Sandbox) openSpareFiles(ctx context.Context) error {
	files, err := guestfs.OpenSpare(ctx, s.fileOptions())
	if err != nil {
		return err
	}
	return s.useFiles(ctx, files)
}

// barePod returns a sandbox of a configuration that has no share yet.
func barePod(ctx context.Context, platform Platform, id string, cfg *config.Config) (*Sandbox, error) {
	platform.Spare, platform.StartMaker, platform.StartSpare = nil, nil, nil
	s, err := newSandbox(ctx, platform, Options{ID: id, Config: cfg})
	s.files = guestfs.WithoutShare(s.fileOptions())
	return s, err
}

// MachineKeys returns the keys of the template and of the spares that fit a
// configuration. They change with every input of the machine.
func MachineKeys(ctx context.Context, platform Platform, cfg *config.Config) (template, spare factory.Key, err error) {
	s, err := barePod(ctx, platform, "key", cfg)
	defer s.end()
	if err == nil {
		template, spare, err = s.machineKeys()
	}
	return template, spare, err
}

func (s *Sandbox) machineKeys() (template, spare factory.Key, err error) {
	h, spec := s.opts.Config.Hypervisor, s.spec()
	if err := checkTemplate(spec, h.EntropySource); err != nil {
		return "", "", err
	}
	in, err := factory.InputsOf(s.platform.Monitor, spec)
	if err == nil {
		template, err = factory.KeyOf(in)
	}
	if err != nil {
		return "", "", fmt.Errorf("inspect what a machine is made of: %w", err)
	}
	// What a template leaves open and a running machine does not.
	if daemon := h.VirtioFS.Daemon; daemon != "" {
		if err := in.AddFile(daemon); err != nil {
			return "", "", fmt.Errorf("inspect the share's daemon: %w", err)
		}
	}
	in.Machine = append(in.Machine, fmt.Sprintf("rootless %v %d %d, balloon %v, entropy %q, console %v, %s",
		h.Rootless, h.FirstUID, h.UIDs, h.Memory.Reclaim, h.EntropySource, h.Debug, guestfs.ShareConfig(h)))
	spare, err = factory.KeyOf(in)
	return template, spare, err
}

func (s *Sandbox) spareKey() (factory.Key, error) {
	_, key, err := s.machineKeys()
	return key, err
}

// Key is the key of the sandboxes' machines that fit it.
func (p *Spare) Key() factory.Key { return p.key }

// PID is the VMM's process id.
func (p *Spare) PID() int { return p.pod.vm.PID() }

// Processes are the ids of the processes that the machine has beside this one.
func (p *Spare) Processes() []int {
	list := []int{p.PID()}
	if daemon := p.pod.files.DaemonPID(); daemon != 0 {
		list = append(list, daemon)
	}
	return list
}

// Done is closed when the machine has ended.
func (p *Spare) Done() <-chan struct{} { return p.pod.vm.Done() }

// ShareDone is closed when the machine's share is no longer served: no sandbox
// adopts it then. Without a share it is never closed.
func (p *Spare) ShareDone() <-chan struct{} { return p.pod.files.Done() }

// Left is closed when the directory is not needed any more: a sandbox has adopted
// the machine, or Close has ended it.
func (p *Spare) Left() <-chan struct{} { return p.left }

// take reports whether the caller is the first; it owns the machine then.
func (p *Spare) take() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	first := !p.taken
	p.taken = true
	return first
}

// Close ends the machine, unless a sandbox has adopted it. It may be called
// again.
func (p *Spare) Close(ctx context.Context) error {
	if p == nil || !p.take() {
		return nil
	}
	defer close(p.left)
	err := p.pod.boot.unwind(ctx)
	p.pod.end()
	return err
}

// discard is Close for a sandbox that did not adopt the spare.
func (p *Spare) discard(ctx context.Context) {
	if err := p.Close(ctx); err != nil {
		log.G(ctx).WithError(err).Warn("a spare machine could not be ended completely")
	}
}

// considerSpare decides whether the sandbox adopts the platform's spare machine.
func (s *Sandbox) considerSpare(ctx context.Context) {
	p := s.platform.Spare
	if p == nil {
		return
	}
	if err := s.fits(p); err != nil {
		log.G(ctx).WithError(err).Info("the guest boots: the spare machine does not fit the pod")
		return
	}
	s.spare = p
}

// fits returns why the sandbox cannot have that machine, or nil.
func (s *Sandbox) fits(p *Spare) error {
	switch f := s.opts.Config.Factory; {
	case closed(p.Done()):
		return fmt.Errorf("it has ended: %w", p.pod.vm.Err())
	case f.VMs == 0:
		return errors.New("factory.vm_cache_number is 0")
	case p.pod.template.key != "" && !f.Template:
		return errors.New("it is from a template, and the pod wants none")
	case closed(p.ShareDone()):
		return fmt.Errorf("its share has ended: %w", p.pod.files.Err())
	}
	key, err := s.spareKey()
	if err == nil && key != p.key {
		err = fmt.Errorf("its key is %s, that of the pod's machine %s: %w", p.key, key, errdefs.ErrFailedPrecondition)
	}
	return err
}

// adopting returns the steps of a boot for a sandbox with a spare, which has done some
// of them. The first of those takes over all that they made, and its undo removes it. Of
// the others only agent has an undo, which comes before that one.
func (s *Sandbox) adopting(p *plan) []step {
	p.share.do, p.share.undo = s.adopt, s.endAdopted
	p.agent.do = func(context.Context) error {
		s.useAgent(s.spare.pod.client)
		return nil
	}
	for _, done := range []*step{&p.user, &p.vm, &p.vsock, &p.storage, &p.hardware, &p.resume} {
		done.do, done.undo = func(context.Context) error { return nil }, nil
	}
	return p.boots()
}

// adopt takes over the spare's machine with its files.
func (s *Sandbox) adopt(ctx context.Context) error {
	from := s.spare.pod
	if !s.spare.take() {
		return fmt.Errorf("adopt spare machine: another sandbox has it: %w", errdefs.ErrUnavailable)
	}
	defer close(s.spare.left)
	s.vm, s.jail, s.transport, s.template = from.vm, from.jail, from.transport, ofTemplate{key: from.template.key}
	s.files = from.files
	err := s.adoptRecord(from)
	from.end()
	if err == nil {
		err = s.files.Give(ctx, s.fileOptions())
	}
	if err != nil {
		return errors.Join(err, s.endAdopted(context.WithoutCancel(ctx)))
	}
	return nil
}

// adoptRecord makes the pod's record name what the spare has, then removes the
// spare's.
func (s *Sandbox) adoptRecord(from *Sandbox) error {
	err := s.state.UpdateWith(s.vm.PID(), func(r *persist.Record, p persist.Process) { r.VM = p })
	if err == nil {
		err = s.recordDaemon()
	}
	if err == nil {
		err = from.state.Remove()
	}
	return err
}

// endAdopted ends what the spare has made, each part within its own time, as the
// steps that made them would be undone.
func (s *Sandbox) endAdopted(ctx context.Context) error {
	var errs []error
	for _, end := range []func(context.Context) error{
		func(context.Context) error { return s.spare.pod.client.Close() },
		s.stopVM,
		func(context.Context) error { return s.transport.Close() },
		s.closeJail,
		s.files.Close,
	} {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		errs = append(errs, end(ctx))
		cancel()
	}
	return errors.Join(errs...)
}
