package virtcontainers

import (
	"cmp"
	"path/filepath"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containerd/log"

	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/pool"
)

// PoolDir is the directory of the host's spare machines.
func PoolDir(runDir string) pool.Pool { return pool.Pool{Dir: filepath.Join(runDir, "pool")} }

// refills reports whether the sandbox orders missing spares.
func (s *Sandbox) refills() bool {
	return s.opts.Config.Factory.VMs > 0 && s.platform.StartSpare != nil
}

// refillPause is how long after the start of a pod's first container the next
// spare is ordered. Making one takes CPU time, which the first moments of a
// container need more, and a short pod's end.
const refillPause = 500 * time.Millisecond

// refill orders a spare, some time after the first container's start, if some are
// missing. If the sandbox ends before, Stop orders it. The process that makes one
// makes the template first, if that is missing too, and orders the next spare. A pod
// that missed its template does not put the order off: it also is the template's.
// Whatever the pod's annotations are, spares are the configuration file's: there are
// never more than it says.
func (s *Sandbox) refill() {
	if s.home == nil || !s.awaitStarted() {
		return
	}
	if s.template.missed == "" && !s.pause(cmp.Or(s.platform.RefillPause, refillPause)) {
		s.owesSpare = true
		return
	}
	s.orderMissing()
}

// pause waits that long, and reports whether the sandbox has not ended before.
func (s *Sandbox) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.lifeCtx.Done():
		return false
	}
}

// orderOwed orders what refill has left to the sandbox's end. The sandbox must
// have stopped.
func (s *Sandbox) orderOwed() {
	s.orderOnce.Do(func() {
		if s.owesSpare {
			s.orderMissing()
		}
	})
}

// orderMissing orders a spare, if some are missing. If none is ordered, the
// template that the pod missed is ordered alone: a failure to make spares must not
// keep pods from a template.
func (s *Sandbox) orderMissing() {
	entry, config := log.G(s.lifeCtx), sourceFile(s.opts.Config)
	err := s.orderSpare(config)
	switch {
	case errdefs.IsUnavailable(err) || errdefs.IsAlreadyExists(err):
		entry.WithError(err).Debug("no spare machine is ordered")
	case err != nil:
		entry.WithError(err).Warn("no spare machine is made")
	default:
		entry.Info("a spare machine is made in the background")
		return
	}
	if s.template.missed != "" && s.platform.StartMaker != nil {
		s.orderTemplate()
	}
}

func (s *Sandbox) orderSpare(config string) error {
	engine := s.platform.Owner.Address
	name, err := pool.NameOf(engine, config, s.home)
	if err != nil {
		return err
	}
	have, err := PoolDir(s.platform.RunDir).Ready(name)
	if err != nil {
		return err
	}
	if have >= int(s.opts.Config.Factory.VMs) {
		return errdefs.ErrAlreadyExists
	}
	lock, err := s.templates().Claim(factory.Key(name))
	if err != nil {
		return err
	}
	defer lock.Close() // the process has its own
	return s.platform.StartSpare(TemplateOrder{Config: config, Engine: engine, Lock: lock.File(), Home: s.home})
}
