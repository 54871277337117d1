package api

// LinkSettings are the settings of an interface that a guest gets, as CNI's plugin
// tuning sets them: a family, and a file in /proc/sys/net/FAMILY/conf/NAME
// (Documentation/networking/ip-sysctl.rst). Each has a number.
var LinkSettings = []string{
	"ipv4/accept_local", "ipv4/accept_redirects", "ipv4/accept_source_route", "ipv4/arp_accept", "ipv4/arp_announce", "ipv4/arp_filter", "ipv4/arp_ignore",
	"ipv4/arp_notify", "ipv4/drop_gratuitous_arp", "ipv4/drop_unicast_in_l2_multicast", "ipv4/forwarding", "ipv4/ignore_routes_with_linkdown",
	"ipv4/log_martians", "ipv4/promote_secondaries", "ipv4/proxy_arp", "ipv4/proxy_arp_pvlan", "ipv4/route_localnet", "ipv4/rp_filter",
	"ipv4/secure_redirects", "ipv4/send_redirects", "ipv4/shared_media", "ipv4/src_valid_mark",
	"ipv6/accept_ra", "ipv6/accept_ra_defrtr", "ipv6/accept_ra_pinfo", "ipv6/accept_redirects", "ipv6/accept_source_route", "ipv6/autoconf",
	"ipv6/drop_unsolicited_na", "ipv6/forwarding", "ipv6/hop_limit", "ipv6/ignore_routes_with_linkdown", "ipv6/ndisc_notify", "ipv6/proxy_ndp",
	"ipv6/use_tempaddr",
}
