package engine

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/harness"
)

// Console copies a process's output from its FIFOs by iSulad's rule: the first
// end of file on either stream ends the loop, and what arrives more than 100 ms
// later is lost.
type Console struct {
	// Out and Err hold the output so far.
	Out, Err harness.Buffer
	// Ended has the end times of the streams that ended before the copying
	// stopped. It may be read after Done.
	Ended map[string]time.Time

	stop *pipe
	once sync.Once
	done chan struct{}

	mu    sync.Mutex // guards what follows
	fifos *fifos
}

// lastGrace is how long iSulad keeps reading after the first end of file.
const lastGrace = 100 * time.Millisecond

func newConsole(f *fifos) (*Console, error) {
	stop, err := newPipe()
	if err != nil {
		return nil, err
	}
	c := &Console{Ended: map[string]time.Time{}, fifos: f, stop: stop, done: make(chan struct{})}
	go c.run()
	return c, nil
}

// Type writes to the process's stdin.
func (c *Console) Type(text string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := unix.Write(c.fifos.in, []byte(text)); err != nil {
		return fmt.Errorf("write stdin: %w", err)
	}
	return nil
}

// Wait waits until nothing more is read: the foreground "isula run" returns
// then.
func (c *Console) Wait(ctx context.Context) error {
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the end of output: %w; stdout so far %.300q, stderr %.300q", ctx.Err(), c.Out.String(), c.Err.String())
	}
}

// close ends the copying, as the engine's death does. It must be called at
// least once for each console.
func (c *Console) close() {
	c.once.Do(c.stop.closeWrite)
	<-c.done
}

// end closes what run has used.
func (c *Console) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fifos.close()
	_ = unix.Close(c.stop.r)
}

// source is a stream that is still being read.
type source struct {
	name string
	fd   int
	to   *harness.Buffer
}

func (c *Console) sources() []source {
	var s []source
	if c.fifos.out >= 0 {
		s = append(s, source{"stdout", c.fifos.out, &c.Out})
	}
	if c.fifos.err >= 0 {
		s = append(s, source{"stderr", c.fifos.err, &c.Err})
	}
	return s
}

func (c *Console) run() {
	defer close(c.done)
	defer c.end()
	sources := c.sources()
	var deadline time.Time
	for len(sources) > 0 {
		left := -1 // poll(2): without a timeout
		if !deadline.IsZero() {
			left = int(time.Until(deadline).Milliseconds())
		}
		if !deadline.IsZero() && left <= 0 {
			return
		}
		ended, more := c.pollOnce(sources, left)
		if !more {
			return
		}
		for _, name := range ended {
			sources = without(sources, name)
			c.Ended[name] = time.Now()
			if deadline.IsZero() {
				deadline = c.Ended[name].Add(lastGrace)
			}
		}
	}
}

// pollOnce waits for one round of input. It returns the streams that ended, and
// false if the copying must stop.
func (c *Console) pollOnce(sources []source, timeout int) (ended []string, more bool) {
	fds := []unix.PollFd{{Fd: int32(c.stop.r), Events: unix.POLLIN}}
	for _, s := range sources {
		fds = append(fds, unix.PollFd{Fd: int32(s.fd), Events: unix.POLLIN})
	}
	if _, err := unix.Poll(fds, timeout); err != nil {
		return nil, err == unix.EINTR
	}
	if fds[0].Revents != 0 {
		return nil, false
	}
	buf := make([]byte, 16<<10)
	for i, s := range sources {
		if fds[i+1].Revents == 0 {
			continue
		}
		n, err := unix.Read(s.fd, buf)
		if n > 0 {
			_, _ = s.to.Write(buf[:n])
		} else if n == 0 && err == nil {
			ended = append(ended, s.name)
		}
	}
	return ended, true
}

func without(sources []source, name string) []source {
	var rest []source
	for _, s := range sources {
		if s.name != name {
			rest = append(rest, s)
		}
	}
	return rest
}
