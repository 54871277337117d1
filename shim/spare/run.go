package spare

import (
	"context"
	"errors"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/katabox/katabox/shim/maker"
	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/factory"
	"github.com/katabox/katabox/virtcontainers/pool"
	"github.com/katabox/katabox/virtcontainers/sizing"
	"github.com/katabox/katabox/virtcontainers/sizing/hostcgroup"
)

const (
	// processName is what ps shows, of 15 bytes at most.
	processName = "kata-spare"
	// hardEnd is how long after its timeout a spare that is not ready ends
	// whatever it is doing.
	hardEnd = time.Minute
	// endTimeout bounds the end of a spare's machine.
	endTimeout = 10 * time.Second
)

// Host returns what this host provides. ctx has the logger for the monitor's
// output.
type Host func(ctx context.Context) virtcontainers.Platform

// spare is the process.
type spare struct {
	host           Host
	config, engine string
	lock           *factory.Lock

	title    title
	platform virtcontainers.Platform
	pool     pool.Pool
	store    factory.Store
	name     string
	key      factory.Key
	made     time.Time
	entry    *pool.Entry
	machine  *virtcontainers.Spare
	listener *net.UnixListener
	// leave moves the process out of its own cgroup (sizing.Confine); nil before
	// it was in there.
	leave func(context.Context) error
}

// Run is the process. args are the command-line arguments after
// maker.SpareCommand: the configuration file, or "", the engine's address, and
// room for another command line.
func Run(ctx context.Context, args []string, host Host) error {
	if len(args) != 3 {
		return errors.New("spares are started by shims alone")
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	lock, err := maker.Settle(processName)
	if err != nil {
		return err
	}
	s := &spare{host: host, config: args[0], engine: args[1], lock: lock}
	err = errors.Join(s.makeOnce(ctx), lock.Close())
	if s.listener == nil {
		return errors.Join(err, s.end())
	}
	r := s.await(ctx)
	if r == nil {
		return s.end()
	}
	return s.serve(context.WithoutCancel(ctx), r)
}

// makeOnce makes a machine, offers it, and records how that went: pods do not
// order another one soon after a failure.
func (s *spare) makeOnce(ctx context.Context) error {
	defer time.AfterFunc(virtcontainers.TemplateTimeout+hardEnd, func() { os.Exit(1) }).Stop()
	ctx, cancel := context.WithTimeout(ctx, virtcontainers.TemplateTimeout)
	defer cancel()
	cfg, err := config.Load(s.config)
	if err != nil || cfg.Factory.VMs == 0 {
		return err
	}
	s.store = factory.Store{Dir: cfg.Factory.TemplatePath}
	home, err := hostcgroup.Self()
	if err != nil {
		return err
	}
	if s.name, err = pool.NameOf(s.engine, s.config, home); err != nil {
		return err
	}
	attempt, err := s.store.Begin(factory.Key(s.name))
	if err != nil {
		return err
	}
	err = s.make(ctx, cfg)
	if err != nil && !errors.Is(ctx.Err(), context.Canceled) {
		return errors.Join(err, attempt.Failed(err))
	}
	err = errors.Join(err, attempt.Succeeded())
	if err == nil {
		s.orderNext(cfg, home)
	}
	return err
}

// make makes the template, if it is missing, and a machine.
func (s *spare) make(ctx context.Context, cfg *config.Config) (err error) {
	if err := s.lock.Sign(); err != nil {
		return err
	}
	if s.title, err = newTitle(); err != nil {
		return err
	}
	s.platform = s.host(ctx)
	s.leave = sizing.Confine(s.platform.CgroupRoot, cfg, s.platform.Accel)
	s.pool, s.made = virtcontainers.PoolDir(s.platform.RunDir), time.Now()
	template, key, err := virtcontainers.MachineKeys(ctx, s.platform, cfg)
	if err != nil {
		return err
	}
	s.key = key
	if err := errors.Join(s.pool.End(s.replaces), s.pool.Tidy()); err != nil {
		return err
	}
	if cfg.Factory.Template && s.store.Due(template) {
		// A failure is recorded, and the spare boots then.
		_, _ = virtcontainers.MakeTemplate(ctx, s.platform, cfg, virtcontainers.TemplateOptions{Lock: s.lock})
	}
	id := pool.NewID()
	s.entry, err = s.pool.Add(id, pool.Info{
		Name: s.name, Key: string(key), Engine: s.engine, Config: s.config, Store: s.store.Dir, Created: s.made,
	})
	if err == nil {
		s.machine, err = virtcontainers.MakeSpare(ctx, s.platform, "spare-"+id, cfg, s.entry.Dir())
	}
	if err == nil {
		s.listener, err = s.entry.Offer()
	}
	return err
}

// replaces reports whether a spare was made for the same pods as this one, but
// fits them no longer.
func (s *spare) replaces(i pool.Info) bool {
	return i.Config == s.config && i.Engine == s.engine && (i.Name != s.name || i.Key != string(s.key))
}

// orderNext starts the process that makes the next spare, if one is missing,
// and passes the lock on to it. After an error the next pod orders it.
func (s *spare) orderNext(cfg *config.Config, home []byte) {
	have, err := s.pool.Ready(s.name)
	if err != nil || have >= int(cfg.Factory.VMs) {
		return
	}
	lock, err := s.lock.Pass()
	if err != nil {
		return
	}
	_ = maker.StartSpare(virtcontainers.TemplateOrder{Config: s.config, Engine: s.engine, Lock: lock, Home: home})
}

// end ends the machine and removes what the spare has on the host.
func (s *spare) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	err := s.machine.Close(ctx)
	if s.entry != nil {
		err = errors.Join(err, s.entry.Remove())
	}
	if s.leave != nil {
		err = errors.Join(err, s.leave(ctx))
	}
	return err
}
