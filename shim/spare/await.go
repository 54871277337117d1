package spare

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/katabox/katabox/virtcontainers"
	"github.com/katabox/katabox/virtcontainers/config"
	"github.com/katabox/katabox/virtcontainers/pool"
)

const (
	// checkPause is the time between two checks that the spare is still wanted.
	// A claimer that has not connected after one is gone.
	checkPause = 10 * time.Second
	// maxAge is when a spare that no pod has claimed ends.
	maxAge = 24 * time.Hour
)

// await waits for a pod's order; nil if the spare is to end.
func (s *spare) await(ctx context.Context) *pool.Request {
	defer s.listener.Close()
	silent, stop := s.watchGuest(ctx)
	defer stop()
	accepted := make(chan *net.UnixConn, 1)
	go func() {
		defer close(accepted)
		if conn, err := s.listener.AcceptUnix(); err == nil {
			accepted <- conn
		}
	}()
	checks := time.NewTicker(checkPause)
	defer checks.Stop()
	for claimed := false; ; {
		select {
		case conn := <-accepted:
			return s.receive(conn)
		case <-ctx.Done():
			return nil
		case <-s.machine.Done():
			return nil
		case <-s.machine.ShareDone():
			return nil
		case <-silent: // A pod that has claimed the spare will notice it, too.
			if s.withdraw() {
				return nil
			}
		case <-checks.C:
			if claimed || s.unwanted(ctx) != nil && s.withdraw() {
				return nil
			}
			claimed = !s.entry.Offered()
		}
	}
}

// withdraw reports whether the spare's offer has ended without a claim.
func (s *spare) withdraw() bool {
	mine, err := s.entry.Withdraw()
	return mine || err != nil
}

// watchGuest asks the guest after each checkPause whether it still answers. silent has a
// value once it does not. After stop has returned no question is open.
func (s *spare) watchGuest(ctx context.Context) (silent <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	failed, ended := make(chan struct{}, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for err := error(nil); err == nil; err = s.machine.Ping(ctx) {
			select {
			case <-time.After(checkPause):
			case <-ctx.Done():
				return
			}
		}
		failed <- struct{}{}
	}()
	return failed, func() {
		cancel()
		<-ended
	}
}

// receive reads the claimer's order; nil if it sent none.
func (s *spare) receive(conn *net.UnixConn) *pool.Request {
	if conn == nil {
		return nil
	}
	r, err := pool.Receive(conn)
	if err != nil {
		return nil
	}
	return r
}

// unwanted returns why the spare is of no use any more, or nil.
func (s *spare) unwanted(ctx context.Context) error {
	if time.Since(s.made) > maxAge {
		return errors.New("too old")
	}
	cfg, err := config.Load(s.config)
	if err != nil {
		return err
	}
	_, key, err := virtcontainers.MachineKeys(ctx, s.platform, cfg)
	if err == nil && key != s.key {
		err = fmt.Errorf("the machine's key is %s now, not %s", key, s.key)
	}
	if err != nil {
		return err
	}
	return s.tooMany(int(cfg.Factory.VMs))
}

// tooMany fails if there are more spares than wanted and this one is to go: they
// agree on which by their order.
func (s *spare) tooMany(want int) error {
	ids, err := s.pool.ReadyIDs(s.name)
	if err == nil && slices.Index(ids, s.entry.ID()) >= want {
		err = fmt.Errorf("there are %d spares, want %d", len(ids), want)
	}
	return err
}
