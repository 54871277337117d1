package virtcontainers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/guestfs"
)

// templateDialTimeout is how long a guest from a template may take to answer:
// usually some hundred milliseconds, longer on a busy host.
const templateDialTimeout = 20 * time.Second

// ofTemplate says from which template a sandbox's machine started.
type ofTemplate struct {
	// key is that of the template from which the machine started; empty if it
	// booted.
	key factory.Key
	// never makes the machine boot even if there is a template.
	never bool
	// missed is the key of the template from which the machine could have
	// started, but which did not exist; empty if the sandbox may not order it.
	missed factory.Key
	// suspect is the key of the template without which the machine boots, because of
	// fault; empty for none. The outcome of that boot shows whether it is bad.
	suspect factory.Key
	fault   error
}

// templates returns the store of the configuration's templates.
func (s *Sandbox) templates() factory.Store {
	return factory.Store{Dir: s.opts.Config.Factory.TemplatePath}
}

// checkTemplate returns why no template can be made of a machine, or nil.
func checkTemplate(spec hypervisor.Spec, entropySource string) error {
	what := oddity(spec)
	if what == "" && entropySource == "" {
		what = "no entropy source"
	}
	if what != "" {
		return fmt.Errorf("machines with %s have no templates: %w", what, errdefs.ErrInvalidArgument)
	}
	return nil
}

// oddity names what a machine has that none can have which continues from another
// one; empty for nothing.
func oddity(spec hypervisor.Spec) string {
	switch {
	case spec.Memory != hypervisor.MemoryBacking{}:
		return "memory of huge pages or files, or preallocated"
	case spec.ExtraMonitor != hypervisor.ExtraMonitor{}:
		return "an extra monitor"
	case spec.PanicDump != hypervisor.PanicDump{}:
		return "a directory for memory dumps"
	}
	return ""
}

// launch starts the machine: from a template if that is configured and there is
// one, otherwise by booting. A template with which that fails is suspected.
func (s *Sandbox) launch(ctx context.Context, spec hypervisor.Spec) (hypervisor.VM, error) {
	t, key := s.openTemplate(ctx, spec)
	if t == nil {
		return s.platform.Monitor.Launch(ctx, spec)
	}
	defer t.Close()
	rng, err := openRNG(s.opts.Config.Hypervisor.EntropySource)
	if err != nil {
		return nil, err
	}
	defer rng.File.Close()
	from := spec
	from.Template = t.Machine(rng)
	vm, err := s.launchPrivate(ctx, key, t, from)
	if vm == nil && err == nil {
		vm, err = s.platform.Monitor.Launch(ctx, from)
	}
	if err == nil {
		s.template.key = key
		return vm, nil
	}
	if ctx.Err() != nil || s.stays {
		return nil, err
	}
	s.suspectTemplate(key, err)
	return s.platform.Monitor.Launch(ctx, spec)
}

// openTemplate opens the template that fits the machine; nil if there is none.
func (s *Sandbox) openTemplate(ctx context.Context, spec hypervisor.Spec) (*factory.Template, factory.Key) {
	if !s.opts.Config.Factory.Template || s.template.never {
		return nil, ""
	}
	var key factory.Key
	err := checkTemplate(spec, s.opts.Config.Hypervisor.EntropySource)
	if err == nil {
		var in factory.Inputs
		if in, err = factory.InputsOf(s.platform.Monitor, spec); err == nil {
			key, err = factory.KeyOf(in)
		}
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("the guest boots: no template can fit it")
		return nil, ""
	}
	t, err := s.templates().Open(key)
	switch {
	case errdefs.IsNotFound(err):
		what := "the guest boots: there is no template for it"
		if s.orders(ctx, key) {
			s.template.missed = key
		} else {
			what += ", and none is made: its machine is not the configuration's"
		}
		log.G(ctx).WithField("template", key).Info(what)
	case err != nil:
		s.suspectTemplate(key, err)
	default:
		return t, key
	}
	return nil, ""
}

// suspectTemplate has the machine boot without a template that may be bad.
func (s *Sandbox) suspectTemplate(key factory.Key, why error) {
	s.template = ofTemplate{never: true, suspect: key, fault: why}
}

// judgeTemplate removes a suspected template once the boot without it has ended
// well. After an error of that boot it stays: the fault may be the pod's or the
// host's, and the other pods would boot without the template for a time.
func (s *Sandbox) judgeTemplate(ctx context.Context, bootErr error) {
	key, why := s.template.suspect, s.template.fault
	if key == "" {
		return
	}
	entry := log.G(ctx).WithField("template", key)
	if bootErr != nil {
		entry.WithError(why).Warn("the guest could not be started from its template, which stays: it does not boot without it either")
		return
	}
	dropped := s.templates().Drop(key, why)
	entry.WithError(errors.Join(why, dropped)).Warn("the guest boots, and its template is removed: it cannot be used")
}

// bootAnew reports whether a failed boot should be tried again without a spare
// machine or a template. If the failed step implicates the template, it is suspected. A
// machine that has not ended is not replaced: the record names it.
func (s *Sandbox) bootAnew(ctx context.Context, err error) bool {
	if ctx.Err() != nil || s.stays {
		return false
	}
	if s.spare != nil {
		s.template = ofTemplate{}
		log.G(ctx).WithError(err).Warn("the guest boots: the sandbox could not start on its spare machine")
		return true
	}
	key := s.template.key
	if key == "" {
		return false
	}
	if slices.Contains([]string{"vsock", "hardware", "resume", "agent"}, s.boot.failed) {
		s.suspectTemplate(key, err)
	} else {
		s.template = ofTemplate{never: true}
		log.G(ctx).WithField("template", key).WithError(err).Warn("the guest boots: it could not be started from its template")
	}
	return true
}

// TemplateTimeout is how long making a template may take. A slow host boots a
// guest in some seconds.
const TemplateTimeout = 5 * time.Minute

// TemplateOptions say how to make a template.
type TemplateOptions struct {
	// Lock is held by the caller; nil if it is not.
	Lock *factory.Lock
	// Wanted is the template that a pod has missed; empty for the configuration's.
	Wanted factory.Key
	// Progress, if not nil, is called with each step's description.
	Progress func(string)
}

// MakeTemplate makes the template for sandboxes of this configuration, unless
// it exists: it boots a machine like theirs, waits until its agent answers, and
// saves it. ctx bounds the call. Nothing is left on an error. It fails with
// errdefs.ErrUnavailable while another process makes one, and with
// errdefs.ErrFailedPrecondition if the configuration's is not the one that is wanted.
func MakeTemplate(ctx context.Context, platform Platform, opts Options, how TemplateOptions) (factory.Key, error) {
	opts.ID = "template-" + rand.Text()[:8]
	s, err := newSandbox(ctx, platform, opts)
	defer s.end()
	if err != nil {
		return "", err
	}
	s.files = guestfs.WithoutShare(s.fileOptions())
	spec := s.spec()
	if err := checkTemplate(spec, opts.Config.Hypervisor.EntropySource); err != nil {
		return "", err
	}
	in, err := factory.InputsOf(platform.Monitor, spec)
	if err != nil {
		return "", fmt.Errorf("inspect what a template is made of: %w", err)
	}
	job := factory.Job{Inputs: in, Config: sourceFile(opts.Config), Lock: how.Lock, Wanted: how.Wanted}
	return s.templates().Make(ctx, job, func(ctx context.Context, place factory.Place) error {
		s.platform.states = place.Scratch
		err := explainFull(place.Dir, s.boot.run(ctx, s.templateSteps(place.Dir, how.Progress)))
		return errors.Join(err, s.boot.unwind(ctx))
	})
}

// fullBelow is how many free bytes a file system has at most that counts as full.
const fullBelow = 4 << 20

// explainFull adds that the file system of a template's memory is full: QEMU and its guest
// die of SIGBUS then, and say nothing. A file system without a size (ramfs, or a tmpfs with
// size=0) has no blocks to count.
func explainFull(dir string, err error) error {
	var disk unix.Statfs_t
	if err == nil || unix.Statfs(dir, &disk) != nil || disk.Blocks == 0 || disk.Bavail*uint64(disk.Bsize) >= fullBelow {
		return err
	}
	return fmt.Errorf("%s (factory.template_path) is full, free some of it or set another directory: %w: %w", dir, unix.ENOSPC, err)
}

// templateSteps boot a machine and save it in dir. All of them are undone
// afterwards.
func (s *Sandbox) templateSteps(dir string, progress func(string)) []step {
	p := s.plan()
	p.vm.do = func(ctx context.Context) error { return s.launchTemplate(ctx, dir) }
	// The first device has the same PCI slot in every machine that starts from this
	// one. Without any device the guest would leave no room for others.
	p.hardware.do = func(ctx context.Context) error { return s.attachRNG(ctx, s.opts.Config.Hypervisor.EntropySource) }
	p.resume.undo = nil
	warmUp := step{"warm-up", func(ctx context.Context) error { _, err := s.warmUp(ctx, true); return err }, nil}
	save := step{"save", func(ctx context.Context) error { return s.saveTemplate(ctx, dir) }, nil}
	steps := []step{p.state, p.user, p.vm, p.hardware, p.vsock, p.resume, p.agent, warmUp, save}
	if progress == nil {
		return steps
	}
	for i, s := range steps {
		steps[i].do = func(ctx context.Context) error {
			progress(s.name)
			return s.do(ctx)
		}
	}
	return steps
}

// launchTemplate starts the machine with its memory in a file in dir, which the
// VMM's user owns meanwhile.
func (s *Sandbox) launchTemplate(ctx context.Context, dir string) error {
	if s.jail != nil {
		if err := os.Chown(dir, int(s.jail.uid()), int(s.jail.uid())); err != nil {
			return fmt.Errorf("give directory for memory to QEMU's user: %w", err)
		}
	}
	spec := s.spec()
	spec.Memory = hypervisor.MemoryBacking{Dir: dir, File: factory.MemoryFile}
	return s.start(ctx, spec, s.platform.Monitor.Launch)
}

// saveTemplate removes the vsock device, which belongs to this process, and
// saves the machine.
func (s *Sandbox) saveTemplate(ctx context.Context, dir string) error {
	if err := s.client.Close(); err != nil {
		return err
	}
	if err := s.vm.Detach(ctx, vsock.DeviceID); err != nil {
		return err
	}
	state, err := os.OpenFile(filepath.Join(dir, factory.StateFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(s.vm.Save(ctx, state), state.Close()); err != nil {
		return err
	}
	return s.vm.Stop(ctx)
}
