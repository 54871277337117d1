package virtcontainers

import (
	"context"
	"errors"
	"testing"
	"time"
)

// A request to the management socket that hangs does not keep a sandbox that ends
// from undoing the rest of its boot.
func TestManagementThatHangs(t *testing.T) {
	over, ended := make(chan struct{}), make(chan struct{})
	s := &Sandbox{unmanage: func() error {
		defer close(ended)
		<-over
		return nil
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	closing := make(chan error, 1)
	go func() { closing <- s.closeManagement(ctx) }()
	select {
	case err := <-closing:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it is waited for after its time")
	}
	close(over)
	<-ended
}
