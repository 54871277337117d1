package network

import (
	"os"
	"strings"
	"testing"

	"github.com/katabox/katabox/agent/api"
)

// Settings are the host's, and the guest's usual ones again when the host has them no
// more. What a container sets meanwhile stays.
func TestSettings(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		g := newGuest(t, 1)
		expect := func(name, want string) {
			t.Helper()
			text, err := os.ReadFile(settingFile("net0", name))
			must(t, err)
			if got := strings.TrimSpace(string(text)); got != want {
				t.Errorf("%s is %s, want %s", name, got, want)
			}
		}
		request := func(settings ...*api.Setting) *api.SetNetworkRequest {
			return &api.SetNetworkRequest{Interfaces: []*api.Interface{{PciPath: "01/00", Name: "net0", Mac: mac(1), Settings: settings}}}
		}
		g.apply(request())
		must(t, os.WriteFile(settingFile("default", "ipv4/arp_ignore"), []byte("2"), 0))
		g.apply(request(&api.Setting{Name: "ipv4/arp_ignore", Value: 1}, &api.Setting{Name: "ipv6/hop_limit", Value: 9}))
		expect("ipv4/arp_ignore", "1")
		expect("ipv6/hop_limit", "9")
		must(t, os.WriteFile(settingFile("net0", "ipv6/hop_limit"), []byte("11"), 0))
		g.apply(request(&api.Setting{Name: "ipv4/arp_ignore", Value: 8}, &api.Setting{Name: "ipv6/hop_limit", Value: 9}))
		expect("ipv4/arp_ignore", "8")
		expect("ipv6/hop_limit", "11")
		g.apply(request())
		expect("ipv4/arp_ignore", "2")
		g.apply(request(&api.Setting{Name: "ipv4/arp_ignore", Value: 1}))
		g.apply(&api.SetNetworkRequest{}) // the NIC is another network's next, or is unplugged
		expect("ipv4/arp_ignore", "2")
		if len(g.own.settings) != 0 {
			t.Errorf("remembers %v", g.own.settings)
		}
		g.refuse(request(&api.Setting{Name: "ipv6/hop_limit", Value: 1000}), "interface net0: set ipv6/hop_limit to 1000")
	})
}
