package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

const (
	// A look follows a change when nothing has happened for quietTime, or
	// changeTime after it at the latest.
	quietTime  = 50 * time.Millisecond
	changeTime = 500 * time.Millisecond
	// If changed fails it is called again after retryTime, then after twice the
	// previous pause, at most maxRetryTime.
	retryTime    = time.Second
	maxRetryTime = 64 * time.Second
)

// watched are the netlink groups for all that the guest is told, and for the
// redirects (include/uapi/linux/rtnetlink.h).
var watched = []int{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_TC, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE,
	unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF, // of some settings
}

// Watch calls changed when what the guest should be told differs from the first
// Plug, then from its own last look, or a link has lost one of its filters, or its tap's,
// and again, after a while, if changed fails. A later Plug of another caller is no look:
// it may have failed, or what followed it. A burst of changes is one call; this package's
// own changes cause none. It returns nil when ctx ends, and an error when the namespace
// cannot be watched, or was closed.
func (n *Network) Watch(ctx context.Context, changed func() error) error {
	file, err := n.subscribe(ctx)
	if err != nil {
		return err
	}
	news := news{happened: make(chan struct{}, 1), ended: make(chan error, 1)}
	var reader sync.WaitGroup
	reader.Go(func() { news.follow(file) })
	defer reader.Wait()
	defer file.Close() // ends the reader
	if err := n.watch(ctx, news, changed); err != nil && ctx.Err() == nil {
		return fmt.Errorf("watch network namespace %s: %w", n.opts.Namespace, err)
	}
	return nil
}

// watch begins with a scan: something may have changed between the
// first Plug and the subscription.
func (n *Network) watch(ctx context.Context, news news, changed func() error) error {
	var pause time.Duration
	var next time.Time // of the retry, if one is owed; zero if nothing is, or it is due
	for {
		differs, err := n.differs(ctx)
		if err != nil {
			return err
		}
		if differs || n.owes && !time.Now().Before(next) {
			pause, next = nextPause(pause, changed()), time.Time{}
			if n.owes = pause > 0; n.owes {
				next = time.Now().Add(pause)
			}
		}
		if err := news.settle(ctx, next); err != nil {
			return err
		}
	}
}

// differs reports whether the namespace has changed since it was last asked, or a link
// has lost one of its filters, or its tap's, which Plug then restores. A failed look
// counts as a change: the Plug that follows reports the error.
func (n *Network) differs(ctx context.Context) (bool, error) {
	if err := n.take(ctx); err != nil {
		return false, err
	}
	defer n.give()
	found, err := n.look(ctx)
	if err != nil {
		return true, ctx.Err()
	}
	before := n.seen
	n.seen = found.fingerprint()
	cut := n.cut(ctx, found)
	return n.seen != before || cut, nil
}

// nextPause returns after what time changed is called again, given its error; 0
// for not at all.
func nextPause(before time.Duration, err error) time.Duration {
	if err == nil {
		return 0
	}
	return min(max(2*before, retryTime), maxRetryTime)
}

// subscribe opens a netlink socket in the namespace that receives change
// messages.
func (n *Network) subscribe(ctx context.Context) (*os.File, error) {
	if err := n.take(ctx); err != nil {
		return nil, err
	}
	defer n.give()
	var file *os.File
	err := n.ns.do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		file = os.NewFile(uintptr(fd), "netlink")
		groups := uint32(0)
		for _, g := range watched {
			groups |= 1 << (g - 1)
		}
		return os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}))
	})
	if err != nil {
		if file != nil {
			file.Close()
		}
		return nil, fmt.Errorf("subscribe to network namespace %s: %w", n.opts.Namespace, err)
	}
	return file, nil
}

// news is what a subscription delivers.
type news struct {
	happened chan struct{} // one token: something has changed
	ended    chan error    // why no more will come
}

// follow reads messages until file is closed. It ignores their content: it
// matters only that something happened. If the kernel had to drop messages
// (ENOBUFS), a new look still finds the changes, and the subscription
// continues.
func (w news) follow(file *os.File) {
	buf := make([]byte, 64*1024)
	for {
		_, err := file.Read(buf)
		if err != nil && !errors.Is(err, unix.ENOBUFS) {
			w.ended <- err
			return
		}
		select {
		case w.happened <- struct{}{}:
		default: // a look is already due
		}
	}
}

// settle waits for a change and then until changes have stopped. It waits for the
// first one until next at most, if that is not zero; changes that the caller need not
// act on may end it before. It fails when the news or ctx end.
func (w news) settle(ctx context.Context, next time.Time) error {
	var over <-chan time.Time
	if !next.IsZero() {
		over = time.After(time.Until(next))
	}
	select {
	case <-over:
		return nil
	case <-w.happened:
	case err := <-w.ended:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	latest := time.After(changeTime)
	for {
		select {
		case <-w.happened:
		case <-time.After(quietTime):
			return nil
		case <-latest:
			return nil
		case err := <-w.ended:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// fingerprint returns a text that differs if what the guest must be told about
// the namespace differs.
func (v *view) fingerprint() string {
	all := make(map[int]string)
	var b strings.Builder
	for _, l := range v.links {
		all[l.index] = fmt.Sprint(l.index)
	}
	want, _, err := v.describe(all)
	for _, index := range slices.Sorted(maps.Keys(v.bad)) {
		fmt.Fprintln(&b, v.bad[index])
	}
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(want) // an error leaves the text empty
	fmt.Fprintf(&b, "%v\n%s", err, text)
	return b.String()
}
