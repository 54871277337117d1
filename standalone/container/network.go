package container

import "sync"

// watchNetwork warns, and writes it to the record, if the network's program ends before
// the container, which then has no network any more. It uses the record until stop has
// returned.
func (c *Container) watchNetwork(stdio *Stdio) (stop func()) {
	if c.net == nil {
		return func() {}
	}
	ended := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-ended:
			return
		case <-c.net.Done():
		}
		c.warn(stdio, c.net.Err())
		stdio.warn(c.m.write(c.record))
	})
	return func() {
		close(ended)
		group.Wait()
	}
}
