package main

import "slices"

// bootModules are loaded at start: every pod needs them.
var bootModules = []string{
	"virtio_pci",                 // every device of a pod is a virtio device on PCI
	"vmw_vsock_virtio_transport", // the connection to the host
	"virtiofs",                   // root file systems from the host's share
	"overlay",                    // the agent seals its own binary with an overlay
}

// demandModules are loaded when a pod asks for them by name.
var demandModules = []string{
	"virtio_net",     // a pod's network interface
	"virtio_blk",     // block devices as volumes and root file systems
	"virtio_scsi",    // the same as LUNs of one controller
	"sd_mod",         // disks on that controller
	"virtio_mem",     // memory added to a running pod
	"virtio_balloon", // memory returned by a running pod
	"virtio_rng",     // random numbers from the host
	"pvpanic_pci",    // reports a panic
	"erofs",          // root file systems from an image (ext4 is built in)
	"loop",           // file systems in files
	"cuse",           // devices that containers ask for by name (agent/api, CharDevices)
	"uhid",
	"uinput",
	"ppp_generic",
}

// kernelModules are loaded when the kernel requests them, because a container
// does something that needs them. Other modules are left out for their size
// (sctp, bonding: as large as the twenty smallest matches), or because no pod has
// the hardware.
var kernelModules = slices.Concat(fsModules, linkModules, xtablesModules, nftModules, setModules, qdiscModules, diagModules)

// fsModules are file systems of disks.
var fsModules = []string{
	"xfs", // for devmapper snapshots and volumes that are not ext4
}

// linkModules are network interfaces and what they need.
var linkModules = []string{
	"bridge",       // Docker's and CNI's bridges in a pod (dind, kind)
	"br_netfilter", // their packets through iptables; requested by xt_physdev
	"veth",         // the interfaces of containers in a container
	"tun",          // VPN clients, user-mode networks
	"dummy",        // addresses of node-local services (nodelocaldns, IPVS)
	"macvlan",      // CNI plugins of the same names
	"ipvlan",
	"8021q", // VLANs
	"vxlan", // overlay networks of Docker, flannel, Calico
	"ipip",  // Calico's other overlay
	"vrf",   // routing suites (FRR)
	"ifb",   // shaping of incoming traffic
	"wireguard",
}

// xtablesModules are iptables' tables, matches and targets, for the old iptables
// and for the one on nf_tables.
var xtablesModules = []string{
	"iptable_filter", "iptable_nat", "iptable_mangle", "iptable_raw",
	"ip6table_filter", "ip6table_nat", "ip6table_mangle", "ip6table_raw",
	"ipt_REJECT", "ip6t_REJECT", // Kubernetes' services without endpoints
	"ipt_rpfilter", "ip6t_rpfilter", // Calico, firewalld
	"xt_tcpudp", "xt_multiport", "xt_comment", "xt_conntrack", "xt_state", "xt_addrtype", // most rules
	"xt_mark", "xt_connmark", "xt_nat", "xt_MASQUERADE", "xt_statistic", "xt_recent", // kube-proxy
	"xt_REDIRECT", "xt_owner", "xt_TPROXY", "xt_socket", "xt_CT", // service meshes
	"xt_LOG", "xt_NFLOG", "xt_NFQUEUE", // logs and inspection
	"xt_limit", "xt_hashlimit", "xt_length", "xt_pkttype", "xt_string", "xt_u32", "xt_bpf", "xt_cgroup",
	"xt_iprange", "xt_mac", "xt_physdev", "xt_set",
	"xt_TCPMSS", "xt_tcpmss", // VPNs and overlays with small packets
	"nf_nat_ftp",           // active FTP through NAT
	"nf_conntrack_netlink", // conntrack(8), kube-proxy's clean-up
}

// nftModules are nf_tables' chains and expressions, and the module by which
// iptables-nft uses the matches above.
var nftModules = []string{
	"nf_tables", "nft_compat",
	"nft_chain_nat", "nft_nat", "nft_masq", "nft_redir", "nft_ct",
	"nft_reject_ipv4", "nft_reject_ipv6", "nft_reject_inet",
	"nft_log", "nft_limit", "nft_quota", "nft_connlimit", "nft_objref",
	"nft_fib_ipv4", "nft_fib_ipv6", "nft_fib_inet",
	"nft_hash", "nft_numgen", // load balancing
	"nft_tproxy", "nft_socket", "nft_queue",
}

// setModules are ipset's types that firewalls and network policies use, and
// IPVS, which kube-proxy and Docker's swarm may use.
var setModules = []string{
	"ip_set_hash_ip", "ip_set_hash_net", "ip_set_hash_ipport", "ip_set_hash_ipportip", "ip_set_hash_ipportnet",
	"ip_set_hash_netport", "ip_set_bitmap_port", "ip_set_list_set",
	"ip_vs", "ip_vs_rr", "ip_vs_wrr", "ip_vs_sh", "xt_ipvs",
}

// qdiscModules are for what tc(8) sets up for shaping (CNI's bandwidth plugin)
// and for programs on packets (Cilium).
var qdiscModules = []string{
	"sch_ingress", "sch_tbf", "sch_htb", "sch_netem", "sch_fq", "sch_sfq",
	"cls_u32", "cls_bpf", "cls_matchall", "cls_flower", "act_mirred", "act_bpf", "act_police",
}

// diagModules are small modules that common programs request.
var diagModules = []string{
	"tcp_diag", "udp_diag", "raw_diag", "unix_diag", "netlink_diag", "af_packet_diag", // ss(8)
	"tcp_bbr",     // a congestion control used by servers
	"binfmt_misc", // programs of other architectures, with QEMU's user mode
}
