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
	"github.com/katabox/katabox/internal/spans"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/guestfs"
)

// templateDialTimeout is how long a guest from a template, or a spare, may take to
// answer: usually some hundred milliseconds, longer on a busy host.
const templateDialTimeout = 20 * time.Second

// ofTemplate says from which template a machine started.
type ofTemplate struct {
	// key is that of the template from which the machine started; empty if it
	// booted.
	key factory.Key
	// never makes the machine boot even if there is a template.
	never bool
	// missed is the key of the template from which the machine could have
	// started, but which did not exist; empty if it may not be ordered.
	missed factory.Key
	// suspect is the key of the template without which the machine boots, because of
	// fault; empty for none. The outcome of that boot shows whether it is bad.
	suspect factory.Key
	fault   error
	// copied is the template's memory if this process has made the copy that machines
	// share; nil otherwise.
	copied *factory.Lent
}

// launch starts the machine: from a template if that is configured and there is
// one, otherwise by booting. A template with which that fails is suspected.
func (m *machine) launch(ctx context.Context, spec hypervisor.Spec) (hypervisor.VM, error) {
	t, key := m.openTemplate(ctx)
	if t == nil {
		return m.platform.Monitor.Launch(ctx, spec)
	}
	defer t.Close()
	rng, err := openRNG(m.config.Hypervisor.EntropySource)
	if err != nil {
		return nil, err
	}
	defer rng.File.Close()
	from := spec
	from.Template = t.Machine(rng)
	vm, err := m.launchPrivate(ctx, key, t, from)
	if vm == nil && err == nil {
		vm, err = m.platform.Monitor.Launch(ctx, from)
	}
	if err == nil {
		m.template.key = key
		return vm, nil
	}
	if ctx.Err() != nil || m.stays {
		return nil, err
	}
	m.suspectTemplate(key, err)
	return m.platform.Monitor.Launch(ctx, spec)
}

// openTemplate opens the template that fits the machine; nil if there is none.
func (m *machine) openTemplate(ctx context.Context) (*factory.Template, factory.Key) {
	if !m.config.Factory.Template || m.template.never {
		return nil, ""
	}
	var key factory.Key
	err := m.checkTemplate()
	if err == nil {
		key, err = m.templateKey()
	}
	if err != nil {
		log.G(ctx).WithError(err).Warn("the guest boots: no template can fit it")
		return nil, ""
	}
	t, err := m.templates().Open(key)
	switch {
	case errdefs.IsNotFound(err):
		what := "the guest boots: there is no template for it"
		if m.mayOrder && m.isPlain(ctx, key) {
			m.template.missed = key
		} else {
			what += ", and none is made: its machine is not the configuration's"
		}
		log.G(ctx).WithField("template", key).Info(what)
	case err != nil:
		m.suspectTemplate(key, err)
	default:
		return t, key
	}
	return nil, ""
}

// suspectTemplate has the machine boot without a template that may be bad.
func (m *machine) suspectTemplate(key factory.Key, why error) {
	m.template = ofTemplate{never: true, suspect: key, fault: why}
}

// judgeTemplate removes a suspected template once the boot without it has ended
// well. After an error of that boot it stays: the fault may be the pod's or the
// host's, and the other pods would boot without the template for a time.
func (m *machine) judgeTemplate(ctx context.Context, bootErr error) {
	key, why := m.template.suspect, m.template.fault
	if key == "" {
		return
	}
	entry := log.G(ctx).WithField("template", key)
	if bootErr != nil {
		entry.WithError(why).Warn("the guest could not be started from its template, which stays: it does not boot without it either")
		return
	}
	dropped := m.templates().Drop(key, why)
	entry.WithError(errors.Join(why, dropped)).Warn("the guest boots, and its template is removed: it cannot be used")
}

// leaveTemplate has the machine boot without a template when its start from one has
// failed, and reports whether that is so. If the failed step implicates the template, it is
// suspected.
func (m *machine) leaveTemplate(ctx context.Context, err error) bool {
	key := m.template.key
	if key == "" {
		return false
	}
	if slices.Contains([]string{"vsock", "hardware", "resume", "agent"}, m.boot.failed) {
		m.suspectTemplate(key, err)
	} else {
		m.template = ofTemplate{never: true}
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
func MakeTemplate(ctx context.Context, platform Platform, cfg *config.Config, how TemplateOptions) (factory.Key, error) {
	b, err := newBlueprint(ctx, platform, "template-"+rand.Text()[:8], cfg)
	if err != nil {
		return "", err
	}
	if err := b.checkTemplate(); err != nil {
		return "", err
	}
	in, err := b.inputs()
	if err != nil {
		return "", fmt.Errorf("inspect what a template is made of: %w", err)
	}
	job := factory.Job{Inputs: in, Config: sourceFile(b.config), Lock: how.Lock, Wanted: how.Wanted}
	return b.templates().Make(ctx, job, func(ctx context.Context, place factory.Place) error {
		b.platform.states = place.Scratch
		m := newMachine(*b, spans.New(time.Now()))
		m.files = guestfs.WithoutShare(m.fileOptions())
		err := explainFull(place.Dir, m.boot.run(ctx, m.templateSteps(place.Dir, how.Progress)))
		return errors.Join(err, m.boot.unwind(ctx))
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
func (m *machine) templateSteps(dir string, progress func(string)) []step {
	p := m.plan()
	p.vm.do = func(ctx context.Context) error { return m.launchTemplate(ctx, dir) }
	// The first device has the same PCI slot in every machine that starts from this
	// one. Without any device the guest would leave no room for others.
	p.hardware.do = func(ctx context.Context) error { return m.attachRNG(ctx, m.config.Hypervisor.EntropySource) }
	p.resume.undo = nil
	warmUp := step{"warm-up", func(ctx context.Context) error { return m.warmUp(ctx, true) }, nil}
	save := step{"save", func(ctx context.Context) error { return m.saveTemplate(ctx, dir) }, nil}
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
func (m *machine) launchTemplate(ctx context.Context, dir string) error {
	if m.jail != nil {
		if err := os.Chown(dir, int(m.jail.uid()), int(m.jail.uid())); err != nil {
			return fmt.Errorf("give directory for memory to QEMU's user: %w", err)
		}
	}
	spec := m.spec(m.jail)
	spec.Memory = hypervisor.MemoryBacking{Dir: dir, File: factory.MemoryFile}
	return m.start(ctx, spec, m.platform.Monitor.Launch)
}

// saveTemplate removes the vsock device, which belongs to this process, and
// saves the machine.
func (m *machine) saveTemplate(ctx context.Context, dir string) error {
	if err := m.client.Close(); err != nil {
		return err
	}
	if err := m.vm.Detach(ctx, vsock.DeviceID); err != nil {
		return err
	}
	state, err := os.OpenFile(filepath.Join(dir, factory.StateFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(m.vm.Save(ctx, state), state.Close()); err != nil {
		return err
	}
	return m.vm.Stop(ctx)
}
