package virtcontainers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// TemplateOrder is the order for a process to make a template or a spare.
type TemplateOrder struct {
	// Config is the configuration file; empty for the built-in defaults.
	Config string
	// Key is the template that is wanted; empty for a spare.
	Key factory.Key
	// Engine is the address of the engine whose shim orders; for spares.
	Engine string
	// Lock is the right to make it. The caller owns the file; the process must
	// have its own duplicate before StartMaker returns.
	Lock *os.File
	// Home is the cgroups for the process: hostcgroup.Self's, from before this
	// process joined the pod's.
	Home []byte
}

// StartMaker starts a process that makes a template (RunMaker). The process
// belongs to no pod and outlives this process. wait waits until it has ended,
// bounded by its context, and must be called once.
type StartMaker func(TemplateOrder) (wait func(context.Context) error, err error)

// sourceFile is the absolute path of the file that a configuration was read from;
// empty for none. It identifies the configuration to all processes of the host.
func sourceFile(cfg *config.Config) string {
	if len(cfg.Source) == 0 {
		return ""
	}
	path, err := filepath.Abs(cfg.Source[0])
	if err != nil { // the working directory was removed
		return cfg.Source[0]
	}
	return path
}

// leaveHome records which cgroups this process is in, before it joins the
// pod's, if something may be ordered.
func (s *Sandbox) leaveHome(ctx context.Context) {
	ordersTemplate := s.opts.Config.Factory.Template && s.platform.StartMaker != nil
	if !ordersTemplate && !s.refills() {
		return
	}
	var err error
	if s.home, err = hostcgroup.Self(); err != nil {
		log.G(ctx).WithError(err).Warn("this pod has no template and no spare made")
	}
	s.mayOrder = s.home != nil
}

// markStarted signals that a container runs.
func (s *Sandbox) markStarted() { s.startOnce.Do(func() { close(s.started) }) }

// awaitStarted waits until a container runs, and reports whether one did before
// the sandbox ended.
func (s *Sandbox) awaitStarted() bool {
	select {
	case <-s.started:
		return true
	case <-s.lifeCtx.Done():
		return closed(s.started)
	}
}

// orderTemplate orders the template that the sandbox missed, once its first
// container runs, so as not to slow down the pod's start.
func (s *Sandbox) orderTemplate() {
	ctx, key := s.lifeCtx, s.template.missed
	if !s.awaitStarted() {
		return
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
	wait, err := s.platform.StartMaker(TemplateOrder{Config: sourceFile(s.opts.Config), Key: key, Lock: lock.File(), Home: s.home})
	_ = lock.Close() // the process has it
	if err == nil {
		entry.Info("a template is made in the background")
		err = wait(ctx)
	}
	if ctx.Err() != nil {
		return // the maker goes on
	}
	s.reportMaking(ctx, key, began, err)
}

// reportMaking logs how making a template has ended. A maker that died without
// reporting is recorded as a failure too: the OOM killer may have killed it.
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
