package container

import "sync"

// watch warns, and writes it to the record, if what is beside the command fails before
// its end: the network's program ends, which leaves the container without a network, or
// the log cannot be written. It uses the record until stop has returned.
func (c *Container) watch(stdio *Stdio) (stop func()) {
	var network <-chan struct{}
	if c.net != nil {
		network = c.net.Done()
	}
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			var err error
			select {
			case <-ended:
				return
			case <-network:
				network, err = nil, c.net.Err()
			case err = <-stdio.log.failure():
			}
			c.warn(stdio, err)
			stdio.warn(c.m.write(c.record))
		}
	})
	return func() {
		close(ended)
		group.Wait()
	}
}
