package guest

import (
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// A connection whose guest takes nothing ends, and with it the calls that were left
// behind.
func TestConnectionThatTakesNothingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host, peer := net.Pipe()
		defer peer.Close()
		began := time.Now()
		_, err := takingConn{pipe{host}}.Write([]byte("x"))
		if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != CallTimeout {
			t.Errorf("after %v the write ended with %v", took, err)
		}
		if n, err := peer.Read(make([]byte, 1)); err == nil {
			t.Errorf("the connection still carries %d bytes", n)
		}
	})
}
