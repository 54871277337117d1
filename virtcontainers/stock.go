package virtcontainers

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/pool"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

// refillPause is how long after the start of a pod's first container the next
// spare is ordered. Making one takes CPU time, which the first moments of a
// container need more, and a short pod's end.
const refillPause = 500 * time.Millisecond

// PoolDir is the directory of the host's spare machines.
func PoolDir(runDir string) pool.Pool { return pool.Pool{Dir: filepath.Join(runDir, "pool")} }

// stock keeps the host's templates and spares for the next pods, while a pod runs: it
// orders missing ones, has a template's memory kept, and removes templates that are not used
// any more (expire.go).
// So as not to slow down the pod's start, it waits for begin.
type stock struct {
	platform  Platform
	config    *config.Config
	templates factory.Store
	// home is the cgroups in which this process was before it joined the pod's, or nil
	// if nothing is to be ordered.
	home []byte
	// started is closed, by begin, when the pod's first container runs.
	started chan struct{}
	begin   func()
	// owesSpare is set if fill has left the order to the pod's end; settle orders it, once.
	owesSpare bool
	settled   sync.Once
}

// newStock must be called before this process joins the pod's cgroups.
func newStock(ctx context.Context, platform Platform, cfg *config.Config) *stock {
	s := &stock{platform: platform, config: cfg, templates: factory.Store{Dir: cfg.Factory.TemplatePath}, started: make(chan struct{})}
	s.begin = sync.OnceFunc(func() { close(s.started) })
	if s.ordersTemplates() || s.ordersSpares() {
		var err error
		if s.home, err = hostcgroup.Self(); err != nil {
			log.G(ctx).WithError(err).Warn("this pod has no template and no spare made")
		}
	}
	return s
}

func (s *stock) ordersTemplates() bool {
	return s.config.Factory.Template && s.platform.StartMaker != nil
}
func (s *stock) ordersSpares() bool { return s.config.Factory.VMs > 0 && s.platform.StartSpare != nil }

// awaitStarted waits until a container runs, and reports whether one did before
// the pod ended, and ctx with it.
func (s *stock) awaitStarted(ctx context.Context) bool {
	select {
	case <-s.started:
		return true
	case <-ctx.Done():
		return closed(s.started)
	}
}

// fill orders a spare, some time after the first container's start, if some are
// missing. If the pod, and ctx with it, ends before, settle orders it. The process that
// makes one makes the template first, if that is missing too, and orders the next spare.
// A pod that missed its template does not put the order off: it also is the template's.
// If no spare is ordered, that template is ordered alone: a failure to make spares must
// not keep pods from a template.
func (s *stock) fill(ctx context.Context, missed factory.Key) {
	if s.home == nil || !s.awaitStarted(ctx) {
		return
	}
	if s.ordersSpares() {
		if missed == "" && !pause(ctx, cmp.Or(s.platform.RefillPause, refillPause)) {
			s.owesSpare = true
			return
		}
		if s.orderSpare(ctx) {
			return
		}
	}
	if missed != "" && s.ordersTemplates() {
		s.orderTemplate(ctx, missed)
	}
}

// pause waits that long, and reports whether ctx has not ended before.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// settle orders the spare that fill has left to the pod's end. fill must have returned.
func (s *stock) settle(ctx context.Context) {
	s.settled.Do(func() {
		if s.owesSpare {
			s.orderSpare(ctx)
		}
	})
}

// orderSpare orders a spare, if some are missing, and reports whether it did.
func (s *stock) orderSpare(ctx context.Context) bool {
	err := s.startSpare()
	switch {
	case errdefs.IsUnavailable(err) || errdefs.IsAlreadyExists(err):
		log.G(ctx).WithError(err).Debug("no spare machine is ordered")
	case err != nil:
		log.G(ctx).WithError(err).Warn("no spare machine is made")
	default:
		log.G(ctx).Info("a spare machine is made in the background")
	}
	return err == nil
}

// keep has the memory of the pod's template kept for the next pods, if this process had to
// copy it.
func (s *stock) keep(ctx context.Context, from ofTemplate) {
	if from.copied == nil || s.home == nil || s.platform.StartKeeper == nil || !s.awaitStarted(ctx) {
		return
	}
	entry := log.G(ctx).WithField("template", from.key)
	memory, err := from.copied.Dup()
	if err != nil {
		entry.WithError(err).Debug("the machine has ended: its template's memory is not kept")
		return
	}
	defer memory.Close() // the process has its own
	if err := s.platform.StartKeeper(KeepOrder{Store: s.templates, Key: from.key, Sum: from.copied.Sum, Memory: memory, Home: s.home}); err != nil {
		entry.WithError(err).Warn("the template's memory is not kept for the next pods")
	}
}

// startSpare starts a process that makes a spare. Whatever the pod's annotations are,
// spares are the configuration file's: there are never more than it says.
func (s *stock) startSpare() error {
	engine, source := s.platform.Owner.Address, sourceFile(s.config)
	name, err := pool.NameOf(engine, source, s.home)
	if err != nil {
		return err
	}
	have, err := PoolDir(s.platform.RunDir).Ready(name)
	if err != nil {
		return err
	}
	if have >= int(s.config.Factory.VMs) {
		return errdefs.ErrAlreadyExists
	}
	lock, err := s.templates.Claim(factory.Key(name))
	if err != nil {
		return err
	}
	defer lock.Close() // the process has its own
	return s.platform.StartSpare(TemplateOrder{Config: source, Engine: engine, Lock: lock.File(), Home: s.home})
}

// orderTemplate orders a template, and waits for its maker while the pod lives.
func (s *stock) orderTemplate(ctx context.Context, key factory.Key) {
	entry := log.G(ctx).WithField("template", key)
	lock, err := s.templates.Claim(key)
	switch {
	case errdefs.IsUnavailable(err) || errdefs.IsAlreadyExists(err):
		entry.WithError(err).Debug("another process makes the template")
		return
	case err != nil:
		entry.WithError(err).Warn("no template is made")
		return
	}
	began := time.Now()
	wait, err := s.platform.StartMaker(TemplateOrder{Config: sourceFile(s.config), Key: key, Lock: lock.File(), Home: s.home})
	_ = lock.Close() // the process has it
	if err == nil {
		entry.Info("a template is made in the background")
		err = wait(ctx)
	}
	if ctx.Err() != nil {
		return // the maker goes on
	}
	s.reportMaking(entry, key, began, err)
}

// reportMaking logs how making a template has ended. A maker that died without
// reporting is recorded as a failure too: the OOM killer may have killed it.
func (s *stock) reportMaking(entry *log.Entry, key factory.Key, began time.Time, err error) {
	if err == nil {
		entry.WithField("took", time.Since(began).Round(time.Millisecond)).Info("the process that made the template has ended")
		return
	}
	f, failed := s.templates.Failure(key)
	if !failed || f.At.Before(began) {
		if markErr := s.templates.Fail(key, err); markErr != nil {
			err = fmt.Errorf("%w; %w", err, markErr)
		}
	} else {
		err = fmt.Errorf("%v", f)
	}
	entry.WithError(err).Warn("the template could not be made")
}
