package relay

import (
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/relay/relaytest"
)

// cpuTime returns this process's time on CPUs.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkJoin carries bulk data from TCP to TCP over two relays, as a port-forward
// does, without and with marks. On a host with other work, compare cpu-ns/op.
func BenchmarkJoin(b *testing.B) {
	for name, mark := range map[string]func(HalfCloser) HalfCloser{
		"plain":  func(conn HalfCloser) HalfCloser { return conn },
		"marked": Mark,
	} {
		b.Run(name, func(b *testing.B) {
			client, accepted := tcpPair(b)
			dialled, server := tcpPair(b)
			host, guest := relaytest.Pair(b, waitTime)
			for _, conn := range []interface{ SetDeadline(time.Time) error }{client, server, accepted, dialled, host, guest} {
				_ = conn.SetDeadline(time.Time{})
			}
			ended := make(chan error, 2)
			go func() { ended <- Join(b.Context(), TCP(accepted), mark(host)) }()
			go func() { ended <- Join(b.Context(), mark(guest), TCP(dialled)) }()
			data := make([]byte, 1<<20)
			go func() { _, _ = io.Copy(io.Discard, server) }()
			b.SetBytes(int64(len(data)))
			before := cpuTime(b)
			for b.Loop() {
				if _, err := client.Write(data); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
			_, _ = client.Close(), server.Close()
			for range 2 {
				<-ended
			}
		})
	}
}
