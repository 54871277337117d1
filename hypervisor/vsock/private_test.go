package vsock

import "testing"

// TestPrivateMemory runs others' tests, with memory that is not mapped.
func TestPrivateMemory(t *testing.T) {
	privateMemory = true
	defer func() { privateMemory = false }()
	for name, test := range map[string]func(*testing.T){
		"HostHalfClose": TestHostHalfClose, "GuestHalfClose": TestGuestHalfClose, "DriverReset": TestDriverReset, "Pause": TestPause,
		"GuestCredit": TestGuestCredit, "HostCredit": TestHostCredit, "ManyConnections": TestManyConnections, "NoReceiveBuffers": TestNoReceiveBuffers,
		"HostilePackets": TestHostilePackets, "HostileRings": TestHostileRings, "RepliesAreBounded": TestRepliesAreBounded,
	} {
		t.Run(name, test)
	}
}

// BenchmarkPrivate runs the other benchmarks, with memory that is not mapped.
func BenchmarkPrivate(b *testing.B) {
	privateMemory = true
	defer func() { privateMemory = false }()
	b.Run("HostToGuest", BenchmarkHostToGuest)
	b.Run("GuestToHost", BenchmarkGuestToHost)
	b.Run("Ping", BenchmarkPing)
	b.Run("Connect", BenchmarkConnect)
}
