package network

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/internal/fibrule"
)

func TestCheckAccepts(t *testing.T) {
	for name, req := range map[string]*api.SetNetworkRequest{
		"nothing": nil, "empty": {}, "two NICs": twoNICs(), "rules": withRules(),
		"root port": {Interfaces: []*api.Interface{{PciPath: "1f/00", Name: strings.Repeat("n", maxName), Mac: mac(1)}}},
	} {
		if _, err := check(req); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Routes are normalized as by the kernel, and duplicates removed.
func TestCheckMakesUniform(t *testing.T) {
	want := twoNICs()
	want.Routes = []*api.Route{
		{Interface: "eth0", Destination: "fd09::/16", Scope: 253},
		{Interface: "eth0", Destination: "fd09::/16", Metric: metric6, Onlink: true},
	}
	s, err := check(want)
	if err != nil || len(s.routes) != 1 {
		t.Errorf("%v, %v", s, err)
	}
}

func TestCheckRefuses(t *testing.T) {
	type request = *api.SetNetworkRequest
	many := strings.Split(strings.Repeat("x", api.MaxDNSEntries+1), "")
	tests := map[string]func(request){
		`hostname is "a b"`: func(r request) { r.Hostname = "a b" },
		`hostname is "hhh`:  func(r request) { r.Hostname = strings.Repeat("h", maxHostname+1) },

		`interfaces[1].pci_path is "01/00", want another place than interfaces[0]`: func(r request) { r.Interfaces[1].PciPath = "01/00" },
		`interfaces[1].name is "eth0", want another name than interfaces[0]`:       func(r request) { r.Interfaces[1].Name = "eth0" },
		`interfaces[0].pci_path is ""`:                                             func(r request) { r.Interfaces[0].PciPath = "" },
		`interfaces[0].pci_path is "01/20"`:                                        func(r request) { r.Interfaces[0].PciPath = "01/20" },
		`interfaces[0].pci_path is "01/1F"`:                                        func(r request) { r.Interfaces[0].PciPath = "01/1F" },
		`interfaces[0].pci_path is "/01"`:                                          func(r request) { r.Interfaces[0].PciPath = "/01" },
		`interfaces[0].pci_path is "01/../01"`:                                     func(r request) { r.Interfaces[0].PciPath = "01/../01" },
		`interfaces[0].pci_path is "00/00`:                                         func(r request) { r.Interfaces[0].PciPath = "00" + strings.Repeat("/00", 8) },
		`interfaces[0].name is ""`:                                                 func(r request) { r.Interfaces[0].Name = "" },
		`interfaces[0].name is "lo"`:                                               func(r request) { r.Interfaces[0].Name = "lo" },
		`interfaces[0].name is ".."`:                                               func(r request) { r.Interfaces[0].Name = ".." },
		`interfaces[0].name is "a/b"`:                                              func(r request) { r.Interfaces[0].Name = "a/b" },
		`interfaces[0].name is "a b"`:                                              func(r request) { r.Interfaces[0].Name = "a b" },
		`interfaces[0].name is "eth%d"`:                                            func(r request) { r.Interfaces[0].Name = "eth%d" },
		`interfaces[0].name is "a\x00b"`:                                           func(r request) { r.Interfaces[0].Name = "a\x00b" },
		`interfaces[0].name is "nnnnnnnnnnnnnnnn"`:                                 func(r request) { r.Interfaces[0].Name = strings.Repeat("n", 16) },
		`interfaces[0].mac is 0200`:                                                func(r request) { r.Interfaces[0].Mac = []byte{2, 0} },
		`interfaces[0].mac is 010000000001`:                                        func(r request) { r.Interfaces[0].Mac = []byte{1, 0, 0, 0, 0, 1} },
		`interfaces[0].mac is 000000000000`:                                        func(r request) { r.Interfaces[0].Mac = make([]byte, 6) },
		`interfaces[0].mtu is 65536`:                                               func(r request) { r.Interfaces[0].Mtu = 65536 },
		`interfaces[0].mtu is 4294967295`:                                          func(r request) { r.Interfaces[0].Mtu = 1<<32 - 1 },
		`mtu 1279, want at least 1280 for IPv6`:                                    func(r request) { r.Interfaces[0].Mtu = 1279 },

		`interfaces[0].settings[0].name is "ipv4/../x"`: func(r request) { r.Interfaces[0].Settings = []*api.Setting{{Name: "ipv4/../x"}} },
		`interfaces[0].settings[1].name is "ipv4/tag"`: func(r request) {
			r.Interfaces[0].Settings = []*api.Setting{{Name: "ipv4/rp_filter"}, {Name: "ipv4/tag"}}
		},
		`interfaces[0].settings[1].name is "ipv4/rp_`: func(r request) {
			r.Interfaces[0].Settings = []*api.Setting{{Name: "ipv4/rp_filter"}, {Name: "ipv4/rp_filter"}}
		},
		"36 interfaces[0].settings": func(r request) { r.Interfaces[0].Settings = make([]*api.Setting, len(api.LinkSettings)+1) },

		`addresses[0].prefix is "10.88.0.2"`:           func(r request) { r.Interfaces[0].Addresses[0].Prefix = "10.88.0.2" },
		`addresses[0].prefix is "10.88.0.2/33"`:        func(r request) { r.Interfaces[0].Addresses[0].Prefix = "10.88.0.2/33" },
		`addresses[0].prefix is "0.0.0.0/0"`:           func(r request) { r.Interfaces[0].Addresses[0].Prefix = "0.0.0.0/0" },
		`addresses[0].prefix is "ff02::1/64"`:          func(r request) { r.Interfaces[0].Addresses[0].Prefix = "ff02::1/64" },
		`addresses[0].prefix is "::ffff:10.0.0.1/128"`: func(r request) { r.Interfaces[0].Addresses[0].Prefix = "::ffff:10.0.0.1/128" },
		`addresses[0].peer is "fd00::1"`:               func(r request) { r.Interfaces[0].Addresses[0].Peer = "fd00::1" },
		`addresses[1].peer is "fe80::1%eth0"`:          func(r request) { r.Interfaces[0].Addresses[1].Peer = "fe80::1%eth0" },
		`addresses[1].prefix is "fd01::9/64", want an`: func(r request) { twice(r.Interfaces[1], "fd01::9/128", "fd01::9/64") },
		`addresses[1].prefix is "fd00::2/64", want no`: func(r request) { r.Interfaces[0].WithoutIpv6 = true },
		`addresses[1].prefix is "10.0.0.1/8"`:          func(r request) { twice(r.Interfaces[1], "10.0.0.1/8", "10.0.0.1/8") },

		`routes[0].interface is "eth9"`:            func(r request) { r.Routes[0].Interface = "eth9" },
		`routes[0].destination is "10.0.0.1/8"`:    func(r request) { r.Routes[0].Destination = "10.0.0.1/8" },
		`routes[0].destination is ""`:              func(r request) { r.Routes[0].Destination = "" },
		`routes[0].destination is "::ffff:`:        func(r request) { r.Routes[0].Destination = "::ffff:10.0.0.0/104" },
		`routes[0].gateway is "fd00::1", want an`:  func(r request) { r.Routes[0].Gateway = "fd00::1" },
		`routes[1].gateway is "10.88.0.1"`:         func(r request) { r.Routes[1].Gateway = "10.88.0.1" },
		`routes[0].gateway is "nowhere"`:           func(r request) { r.Routes[0].Gateway = "nowhere" },
		`routes[2].source is "fd01::9"`:            func(r request) { r.Routes[2].Source = "fd01::9" },
		`routes[2].scope is 253, want at most 252`: func(r request) { r.Routes[2].Scope = 253 },
		`routes[3].scope is 255, want at most 254`: func(r request) { r.Routes[3].Scope = 255 },
		`routes[2].mtu is 65521`:                   func(r request) { r.Routes[2].Mtu = 65521 },
		`routes[2].adv_mss is 65496`:               func(r request) { r.Routes[2].AdvMss = 65496 },

		`routes[0].type is 5, want`:             func(r request) { r.Routes[0].Type = unix.RTN_MULTICAST },
		`routes[0] is of type throw, want only`: func(r request) { r.Routes[0].Type = unix.RTN_THROW },
		`routes[0].table is 255, want another`:  func(r request) { r.Routes[0].Table = 255 },

		`rules[0].source is "10.0.0.1/8"`:           rule(func(r *api.Rule) { r.Source = "10.0.0.1/8" }),
		`rules[0].source is "0.0.0.0/0"`:            rule(func(r *api.Rule) { r.Source = "0.0.0.0/0" }),
		`rules[0].destination is "fd00::/64"`:       rule(func(r *api.Rule) { r.Destination = "fd00::/64" }),
		`rules[0].destination is "::ffff:`:          rule(func(r *api.Rule) { r.Ipv6, r.Destination = true, "::ffff:10.0.0.0/104" }),
		`rules[0].in_interface is "eth9"`:           rule(func(r *api.Rule) { r.InInterface = "eth9" }),
		`rules[0].out_interface is "nn`:             rule(func(r *api.Rule) { r.OutInterface = strings.Repeat("n", 1000) }),
		`rules[0].tos is 0x3,`:                      rule(func(r *api.Rule) { r.Tos = 3 }),
		`rules[0].tos is 0x104,`:                    rule(func(r *api.Rule) { r.Tos = 0x104 }),
		`rules[0].protocol is 256`:                  rule(func(r *api.Rule) { r.Protocol = 256 }),
		`rules[0].mark is 0x3, want no bits`:        rule(func(r *api.Rule) { r.Mark, r.Mask = 3, 1 }),
		`rules[0].source_ports is "0-1"`:            rule(func(r *api.Rule) { r.SourcePorts = &api.Range{Last: 1} }),
		`rules[0].destination_ports is "2-1"`:       rule(func(r *api.Rule) { r.DestinationPorts = &api.Range{First: 2, Last: 1} }),
		`rules[0].destination_ports is "1-65535"`:   rule(func(r *api.Rule) { r.DestinationPorts = &api.Range{First: 1, Last: 65535} }),
		`rules[0].uids is "0-4294967295"`:           rule(func(r *api.Rule) { r.Uids = &api.Range{Last: 1<<32 - 1} }),
		`rules[0].action is 2,`:                     rule(func(r *api.Rule) { r.Action = 2 }),
		`rules[0].action is 257,`:                   rule(func(r *api.Rule) { r.Action = 257 }),
		`rules[0].table is 0`:                       rule(func(r *api.Rule) { r.Table = 0 }),
		`rules[0] has a table`:                      rule(func(r *api.Rule) { r.Action = fibrule.Blackhole }),
		`rules[0].suppress_prefix_length is 33`:     rule(func(r *api.Rule) { r.SuppressPrefixLength = proto.Uint32(33) }),
		`rules[0].suppress_prefix_length is 129`:    rule(func(r *api.Rule) { r.Ipv6, r.SuppressPrefixLength = true, proto.Uint32(129) }),
		`absent_rules[0] is "IPv4 rule 1: from all`: func(r request) { r.AbsentRules = []*api.Rule{{Priority: 1, Action: 1, Table: 255}} },
		`absent_rules[1] is "IPv6 rule 0: from all loo`: func(r request) {
			r.AbsentRules = []*api.Rule{{Ipv6: true, Action: 1, Table: 255}, {Ipv6: true, Action: 1, Table: 255}}
		},

		`neighbours[0].interface is "eth9"`:                     func(r request) { r.Neighbours[0].Interface = "eth9" },
		`neighbours[0].address is "10.88.0.1/16"`:               func(r request) { r.Neighbours[0].Address = "10.88.0.1/16" },
		`neighbours[0].mac is `:                                 func(r request) { r.Neighbours[0].Mac = nil },
		`neighbours[1].address is "10.88.0.1", want an address`: func(r request) { r.Neighbours[1] = r.Neighbours[0] },

		`dns.servers[1] is "dns.example"`: func(r request) { r.Dns.Servers[1] = "dns.example" },
		`dns.searches[0] is "a\nb"`:       func(r request) { r.Dns.Searches[0] = "a\nb" },
		`dns.options[0] is ""`:            func(r request) { r.Dns.Options[0] = "" },
		`dns.searches[1] is "sss`:         func(r request) { r.Dns.Searches[1] = strings.Repeat("s", maxDNSEntry+1) },
		"65 dns.searches":                 func(r request) { r.Dns.Searches = many },

		"29 interfaces":                func(r request) { r.Interfaces = make([]*api.Interface, api.MaxInterfaces+1) },
		"4097 routes":                  func(r request) { r.Routes = make([]*api.Route, api.MaxRoutes+1) },
		"1025 rules":                   func(r request) { r.Rules = make([]*api.Rule, api.MaxRules+1) },
		"6 absent_rules":               func(r request) { r.AbsentRules = make([]*api.Rule, 6) },
		"4097 neighbours":              func(r request) { r.Neighbours = make([]*api.Neighbour, api.MaxNeighbours+1) },
		"1025 interfaces[0].addresses": func(r request) { r.Interfaces[0].Addresses = make([]*api.Address, api.MaxAddresses+1) },
	}
	for want, change := range tests {
		req := twoNICs()
		change(req)
		if _, err := check(req); !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got: %v", want, err)
		}
	}
}

// rule returns a change of a request's only rule.
func rule(change func(*api.Rule)) func(*api.SetNetworkRequest) {
	return func(r *api.SetNetworkRequest) {
		r.Rules = []*api.Rule{{Action: fibrule.Lookup, Table: 100}}
		change(r.Rules[0])
	}
}

func twice(in *api.Interface, prefixes ...string) {
	in.Addresses = nil
	for _, prefix := range prefixes {
		in.Addresses = append(in.Addresses, &api.Address{Prefix: prefix})
	}
}

// FuzzCheck reads requests as they come from the host: what is accepted is
// within the limits, and refers only to existing interfaces.
func FuzzCheck(f *testing.F) {
	for _, seed := range []*api.SetNetworkRequest{nil, twoNICs(), withRules(), {Hostname: "pod", Interfaces: []*api.Interface{{}}}} {
		data, err := proto.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		req := &api.SetNetworkRequest{}
		if proto.Unmarshal(data, req) != nil {
			t.Skip()
		}
		s, err := check(req)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) || len(err.Error()) > 1000 {
				t.Errorf("refused with %d bytes: %v", len(err.Error()), err)
			}
			return
		}
		if len(s.nics) > api.MaxInterfaces || len(s.routes) > api.MaxRoutes || len(s.rules) > api.MaxRules || len(s.absent) > len(fibrule.Defaults()) ||
			len(s.neighbours) > api.MaxNeighbours {
			t.Error("too many were accepted")
		}
		for _, r := range slices.Concat(s.rules, s.absent) {
			if back, odd, err := fibrule.Decode(r.Encode()); back != r || odd != "" || err != nil {
				t.Errorf("%s became %s, %q, %v", r, back, odd, err)
			}
		}
		s.locate(make([]int, len(s.nics)))
		for _, n := range s.nics {
			for _, a := range n.addresses {
				if back, ok := addressFrom(*a.netlink()); !ok || back.prefix.Addr() != a.prefix.Addr() {
					t.Errorf("address %s became %s", a, back)
				}
			}
		}
		for _, r := range s.routes {
			made := r.netlink()
			made.Family = familyOf(r)
			if r.kind != 0 {
				if back := withoutHop(*made); back != r.unplaced() {
					t.Errorf("%s became %s", r.text(""), back.text(""))
				}
				continue
			}
			if back := routeFrom(*made, hops(*made)[0]); back != r.unplaced() {
				t.Errorf("%s became %s", r.text("x"), back.text("x"))
			}
		}
	})
}

func familyOf(r route) int {
	if r.destination.Addr().Is4() {
		return 2
	}
	return 10
}
