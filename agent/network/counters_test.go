package network

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

const table = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:     100       1    0    0    0     0          0         0      100       1    0    0    0     0       0          0
  eth0: 1048577      23    4    5    0     0          0         0   204800      67    8    9    0     0       0          0
fifteen-letters:18446744073709551615 1 2 3 0 0 0 0 10 11 12 13 0 0 0 0
`

func TestParseCounters(t *testing.T) {
	got, err := parseCounters(table)
	if err != nil {
		t.Fatal(err)
	}
	want := []Counters{{
		Name: "eth0", RxBytes: 1048577, RxPackets: 23, RxErrors: 4, RxDropped: 5,
		TxBytes: 204800, TxPackets: 67, TxErrors: 8, TxDropped: 9,
	}, {
		Name: "fifteen-letters", RxBytes: 1<<64 - 1, RxPackets: 1, RxErrors: 2, RxDropped: 3,
		TxBytes: 10, TxPackets: 11, TxErrors: 12, TxDropped: 13,
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"eth0: 1 2 3\n", "eth0: x 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"} {
		if _, err := parseCounters(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestReadCounters(t *testing.T) {
	if _, err := ReadCounters(); err != nil {
		t.Error(err)
	}
}
