package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		in   series
		want float64
	}{{nil, 0}, {series{3}, 3}, {series{9, 1, 5}, 5}, {series{4, 1, 3, 2}, 2.5}} {
		if got := test.in.median(); got != test.want {
			t.Errorf("median of %v: %v, want %v", test.in, got, test.want)
		}
	}
}

func TestBootSteps(t *testing.T) {
	log := `level=info msg="sandbox booted" agent_rss=14036992 guest_boot_to_agent_us=1500 t_agent=1738.1 t_vm=69
level=info msg=other t_agent=1
level=info msg="sandbox booted" t_agent=2 t_vm=71
`
	got, err := bootSteps(log)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]series{"t_agent": {1738.1, 2}, "t_vm": {69, 71}, "guest_boot_to_agent": {1.5}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	if got := lastNumber(log, "agent_rss"); got != 14036992 {
		t.Errorf("agent_rss is %d", got)
	}
	if _, err := bootSteps("nothing\n"); err == nil {
		t.Error("a log without boots gives steps")
	}
}

func TestPSS(t *testing.T) {
	if got := pssKiB("Rss:  900 kB\nPss:                 512 kB\nPss_Anon: 3 kB\n"); got != 512 {
		t.Errorf("Pss is %d", got)
	}
}

func TestMbits(t *testing.T) {
	got, err := mbits(`{"start": {}, "end": {"sum_sent": {"bits_per_second": 9e6}, "sum_received": {"bits_per_second": 2.5e8}}}`)
	if err != nil || got != 250 {
		t.Errorf("got %v, error %v, want 250", got, err)
	}
	for _, report := range []string{"", "{}", `{"error": "unable to connect to server"}`} {
		if got, err := mbits(report); err == nil {
			t.Errorf("report %q gives %v", report, got)
		}
	}
}
