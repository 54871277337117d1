package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// smallNet is what Linux 6.12 chooses with 256 MiB.
var smallNet = map[string]string{
	"net/ipv4/tcp_mem": "2565\t3421\t5130", "net/ipv4/udp_mem": "5130\t6842\t10260",
	"net/ipv4/tcp_rmem": "4096\t131072\t1751552", "net/ipv4/tcp_wmem": "4096\t16384\t1751552",
	"net/ipv4/tcp_max_tw_buckets": "1024", "net/ipv4/tcp_max_orphans": "1024", "net/ipv4/tcp_max_syn_backlog": "128",
}

// grown has 16 GiB and 48 GiB of movable memory, which the kernel cannot use for sockets.
const grown = `Node 0, zone      DMA
  per-node stats
      nr_mapped    2712
  pages free     3840
        high     40
        managed  3840
    cpu: 0
              count:    0
              high:     4
Node 0, zone   Normal
  pages free     4190000
        high     24344
        managed  4214848
Node 0, zone  Movable
        high     100
        managed  12582912
Node 0, zone   Device
        high     0
        managed  0
`

// smallMachine has the limits of the kernel's start.
func smallMachine(t *testing.T, commandLine string) (r *Resources, f *fakeMachine) {
	t.Helper()
	r, f, _ = newResources(t)
	f.write(t, f.proc+"/cmdline", commandLine+"\n")
	for file, text := range smallNet {
		f.write(t, filepath.Join(f.proc, "sys", file), text+"\n")
	}
	f.write(t, f.proc+"/meminfo", "MemTotal:  240000 kB\nMemFree:  99 kB\n")
	r.net = readNetLimits(f.proc)
	return r, f
}

func netValues(t *testing.T, f *fakeMachine) map[string]string {
	t.Helper()
	got := map[string]string{}
	for file := range smallNet {
		text, err := os.ReadFile(filepath.Join(f.proc, "sys", file))
		must(t, err)
		got[file] = strings.Join(strings.Fields(string(text)), " ")
	}
	return got
}

// The network's limits are those that the kernel would have chosen with the memory.
func TestNetLimitsFollowMemory(t *testing.T) {
	r, f := smallMachine(t, "quiet")
	f.write(t, f.proc+"/zoneinfo", grown)
	for range 2 {
		if _, err := r.Online(t.Context(), Amount{MemoryMiB: 384}); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"net/ipv4/tcp_mem": "196608 262144 393216", "net/ipv4/udp_mem": "393216 524288 786432",
		"net/ipv4/tcp_rmem": "4096 131072 6291456", "net/ipv4/tcp_wmem": "4096 16384 4194304",
		"net/ipv4/tcp_max_tw_buckets": "65536", "net/ipv4/tcp_max_orphans": "65536", "net/ipv4/tcp_max_syn_backlog": "1024",
	}
	if diff := cmp.Diff(want, netValues(t, f)); diff != "" {
		t.Error(diff)
	}
}

// No limit is lowered, as those of a machine whose memory was removed.
func TestNetLimitsAreNotLowered(t *testing.T) {
	r, f := smallMachine(t, "")
	before := netValues(t, f)
	f.write(t, f.proc+"/zoneinfo", "Node 0, zone Normal\n high 10\n managed 1034\n")
	must(t, r.net.raise(384))
	if diff := cmp.Diff(before, netValues(t, f)); diff != "" {
		t.Error(diff)
	}
}

// A value that the operator or a container has set stays, also when more memory is added
// later.
func TestNetLimitsThatAreSet(t *testing.T) {
	r, f := smallMachine(t, "sysctl.net.ipv4.tcp_max_orphans=1024 sysctl/net/ipv4/tcp_wmem=4096")
	f.write(t, f.proc+"/zoneinfo", grown)
	const tw = "net/ipv4/tcp_max_tw_buckets"
	f.write(t, filepath.Join(f.proc, "sys", tw), "500\n")
	must(t, r.net.raise(384))
	f.write(t, filepath.Join(f.proc, "sys", tw), smallNet[tw]) // by the container, as before
	f.write(t, filepath.Join(f.proc, "sys/net/ipv4/tcp_rmem"), "4096 131072 1000000")
	must(t, r.net.raise(384))
	got := netValues(t, f)
	for file, want := range map[string]string{
		tw: "1024", "net/ipv4/tcp_max_orphans": "1024", "net/ipv4/tcp_wmem": "4096 16384 1751552",
		"net/ipv4/tcp_rmem": "4096 131072 1000000", "net/ipv4/tcp_max_syn_backlog": "1024",
	} {
		if got[file] != want {
			t.Errorf("%s is %s, want %s", file, got[file], want)
		}
	}
}

// A limit that cannot be raised does not keep the others.
func TestNetLimitsThatAreRefused(t *testing.T) {
	r, f := smallMachine(t, "")
	if err := r.net.raise(384); err == nil || !strings.Contains(err.Error(), "zoneinfo") {
		t.Errorf("without zoneinfo: %v", err)
	}
	f.write(t, f.proc+"/zoneinfo", grown)
	must(t, os.Remove(filepath.Join(f.proc, "sys/net/ipv4/tcp_mem")))
	if err := r.net.raise(384); err == nil || !strings.Contains(err.Error(), "tcp_mem") {
		t.Errorf("without tcp_mem: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(f.proc, "sys/net/ipv4/tcp_max_orphans"))
	if err != nil || string(text) != "65536" {
		t.Errorf("%q, %v", text, err)
	}
	f.write(t, f.proc+"/zoneinfo", "Node 0, zone Normal\n managed many\n")
	if err := r.net.raise(384); err == nil || !strings.Contains(err.Error(), "zone Normal") {
		t.Errorf("of nonsense: %v", err)
	}
}

func TestTCPSlots(t *testing.T) {
	for pages, want := range map[uint64]uint64{0: 1, 32: 1, 96: 4, 60000: 2048, 4 << 20: 128 << 10, 1 << 30: 512 << 10} {
		if got := tcpSlots(pages); got != want {
			t.Errorf("%d pages: %d, want %d", pages, got, want)
		}
	}
}
