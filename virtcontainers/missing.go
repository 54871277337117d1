package virtcontainers

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// TemplateOrder is what a process is told that is to make a template.
type TemplateOrder struct {
	// Config is the configuration file; empty for the built-in defaults.
	Config string
	// Lock is the right to make it. The file is the caller's, and the process must
	// have one of its own before StartMaker returns.
	Lock *os.File
	// Home is the cgroups that it is to be in: hostcgroup.Self's, of a time when this
	// process was not yet the pod's.
	Home []byte
}

// StartMaker starts a process that makes a template (RunMaker), which is no part of
// any pod and outlives this process. wait waits until it has ended, no longer than
// its context, and must be called once.
type StartMaker func(TemplateOrder) (wait func(context.Context) error, err error)

// sourceFile is the file that a configuration was read from; empty for none.
func sourceFile(cfg *config.Config) string {
	if len(cfg.Source) == 0 {
		return ""
	}
	return cfg.Source[0]
}

// leaveHome remembers which cgroups this process is in, before it joins the pod's.
func (s *Sandbox) leaveHome(ctx context.Context) {
	if !s.opts.Config.Factory.Template || s.platform.StartMaker == nil {
		return
	}
	var err error
	if s.home, err = hostcgroup.Self(); err != nil {
		log.G(ctx).WithError(err).Warn("no template is made by this pod")
	}
}

// orders reports whether the sandbox may have the template made that its machine
// could have come from: only that of the configuration itself. Otherwise
// annotations could fill the host's memory with templates.
func (s *Sandbox) orders(ctx context.Context, key factory.Key) bool {
	if s.home == nil {
		return false
	}
	plain := s.opts.Config.Plain
	if plain == nil {
		plain = s.opts.Config
	}
	other, err := newSandbox(ctx, s.platform, Options{ID: s.ID, Config: plain})
	defer other.end()
	if err != nil {
		return false
	}
	in, err := factory.InputsOf(s.platform.Monitor, other.spec())
	if err != nil {
		return false
	}
	own, err := factory.KeyOf(in)
	return err == nil && own == key
}

// markStarted says that a container runs.
func (s *Sandbox) markStarted() { s.startOnce.Do(func() { close(s.started) }) }

// orderTemplate has the template made that the sandbox missed, once its first
// container runs: the start of the pod is not to be slowed.
func (s *Sandbox) orderTemplate() {
	ctx, key := s.lifeCtx, s.template.missed
	select {
	case <-s.started:
	case <-ctx.Done():
		if !closed(s.started) {
			return
		}
	}
	entry := log.G(ctx).WithField("template", key)
	lock, err := s.templates().Claim(key)
	switch {
	case errdefs.IsUnavailable(err) || errdefs.IsAlreadyExists(err):
		entry.WithError(err).Debug("another process makes the template")
		return
	case err != nil:
		entry.WithError(err).Warn("no template is made")
		return
	}
	began := time.Now()
	wait, err := s.platform.StartMaker(TemplateOrder{Config: sourceFile(s.opts.Config), Lock: lock.File(), Home: s.home})
	_ = lock.Close() // the process has it
	if err == nil {
		entry.Info("a template is made in the background")
		err = wait(ctx)
	}
	if ctx.Err() != nil {
		return // it goes on by itself
	}
	s.reportMaking(ctx, key, began, err)
}

// reportMaking logs how the making of a template has ended. A process that died
// without a word is remembered as a failure too: it may have been killed for the
// memory that it took.
func (s *Sandbox) reportMaking(ctx context.Context, key factory.Key, began time.Time, err error) {
	entry := log.G(ctx).WithField("template", key)
	if err == nil {
		entry.WithField("took", time.Since(began).Round(time.Millisecond)).Info("the process that made the template has ended")
		return
	}
	f, failed := s.templates().Failure(key)
	if !failed || f.At.Before(began) {
		if markErr := s.templates().Fail(key, err); markErr != nil {
			err = fmt.Errorf("%w; %w", err, markErr)
		}
	} else {
		err = fmt.Errorf("%v", f)
	}
	entry.WithError(err).Warn("the template could not be made")
}
