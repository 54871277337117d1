package config

const (
	otherMonitors   = "only Firecracker and Cloud Hypervisor have it"
	noConfidential  = "guests are not confidential: the host can read their memory"
	nicsRateLimiter = otherMonitors + "; rx_rate_limiter_max_rate and tx_rate_limiter_max_rate limit NICs"
)

// limitKeys limit rates in other monitors than QEMU.
var limitKeys = []key{
	never("hypervisor.qemu.disk_rate_limiter_bw_max_rate", int64(0), count, otherMonitors),
	never("hypervisor.qemu.disk_rate_limiter_bw_one_time_burst", int64(0), count, otherMonitors),
	never("hypervisor.qemu.disk_rate_limiter_ops_max_rate", int64(0), count, otherMonitors),
	never("hypervisor.qemu.disk_rate_limiter_ops_one_time_burst", int64(0), count, otherMonitors),
	never("hypervisor.qemu.net_rate_limiter_bw_max_rate", int64(0), count, nicsRateLimiter),
	never("hypervisor.qemu.net_rate_limiter_bw_one_time_burst", int64(0), count, nicsRateLimiter),
	never("hypervisor.qemu.net_rate_limiter_ops_max_rate", int64(0), count, nicsRateLimiter),
	never("hypervisor.qemu.net_rate_limiter_ops_one_time_burst", int64(0), count, nicsRateLimiter),
}

// confidentialKeys are about guests that need not trust their host.
var confidentialKeys = []key{
	never("hypervisor.qemu.confidential_guest", false, boolean, noConfidential).orFail(),
	never("hypervisor.qemu.sev_snp_guest", false, boolean, noConfidential).orFail(),
	never("hypervisor.qemu.snp_id_block", "", text, noConfidential),
	never("hypervisor.qemu.snp_id_auth", "", text, noConfidential),
	never("hypervisor.qemu.snp_guest_policy", int64(0), count, noConfidential),
	never("hypervisor.qemu.tdx_quote_generation_service_socket_port", int64(0), count, noConfidential),
	never("hypervisor.qemu.measurement_algo", "", text, noConfidential),
}

// cacheKeys are about guests that are kept running.
var cacheKeys = []key{
	never("factory.vm_cache_endpoint", "/var/run/kata-containers/cache.sock", absolutePath,
		"spare guests are kept without a server: each has its own process (vm_cache_number)"),
}

var plannedAgentKeys = []key{
	later("agent.kata.visible_cdi_devices", "", text,
		"The CDI devices that containers may see."),
	never("agent.kata.cdh_api_timeout", int64(50), count,
		"the guest has no confidential data hub").
		annotated("config.agent.cdh_api_timeout"),
	never("agent.kata.launch_process_timeout", int64(6), count,
		"the agent does not start helper processes").
		annotated("config.agent.launch_process_timeout"),
}

var plannedRuntimeKeys = []key{
	later("runtime.guest_selinux_label", "", text,
		"The SELinux label of containers in the guest.").
		annotated("config.runtime.guest_selinux_label"),
	later("runtime.vfio_mode", "guest-kernel", oneOf("", "guest-kernel", "vfio"),
		"What drives VFIO devices: the guest's kernel or a program in the container.").
		annotated("config.runtime.vfio_mode"),
	later("runtime.experimental", []any{}, words,
		"Features to try.").
		annotated("config.runtime.experimental"),
	later("runtime.dan_conf", "/run/kata-containers/dans", absolutePath,
		"Where directly attached networks are described."),
	later("runtime.pod_resource_api_sock", "", text,
		"The kubelet's socket that reports which devices a pod has."),
	never("runtime.experimental_force_guest_pull", false, boolean,
		"images are the engine's: the guest pulls none").
		annotated("config.runtime.experimental_force_guest_pull"),
}
