package config

import "strings"

// planned is the keys that Kata Containers has and that have no effect yet,
// by table.
var planned = map[string]string{
	"hypervisor.qemu": `image rootfs_type rootless enable_annotations valid_hypervisor_paths
		valid_virtio_fs_daemon_paths valid_vhost_user_store_paths valid_entropy_sources
		valid_file_mem_backends valid_jailer_paths jailer_path kernel_verity_params firmware
		firmware_volume pflashes default_bridges memory_slots default_maxmemory memory_offset
		enable_virtio_mem disable_block_device_use virtio_fs_cache_size block_device_driver
		block_device_aio block_device_cache_set block_device_cache_direct
		block_device_cache_noflush block_device_logical_sector_size
		block_device_physical_sector_size enable_iothreads indep_iothreads enable_mem_prealloc
		reclaim_guest_freed_memory enable_hugepages enable_vhost_user_store vhost_user_store_path
		vhost_user_reconnect_timeout_sec enable_iommu enable_iommu_platform enable_numa
		numa_mapping extra_monitor_socket disable_nesting_checks msize_9p disable_image_nvdimm
		hot_plug_vfio cold_plug_vfio pcie_root_port pcie_switch_port entropy_source
		guest_hook_path guest_memory_dump_path guest_memory_dump_paging enable_guest_swap
		use_legacy_serial disable_selinux disable_guest_selinux hypervisor_loglevel
		guest_extension_images confidential_guest sev_snp_guest snp_id_block snp_id_auth
		snp_guest_policy tdx_quote_generation_service_socket_port measurement_algo
		file_mem_backend hotplug_vfio_on_root_bus disk_rate_limiter_bw_max_rate
		disk_rate_limiter_bw_one_time_burst disk_rate_limiter_ops_max_rate
		disk_rate_limiter_ops_one_time_burst net_rate_limiter_bw_max_rate
		net_rate_limiter_bw_one_time_burst net_rate_limiter_ops_max_rate
		net_rate_limiter_ops_one_time_burst`,
	"factory": "enable_template template_path vm_cache_number vm_cache_endpoint",
	"agent.kata": `enable_tracing debug_console_enabled cdh_api_timeout launch_process_timeout
		visible_cdi_devices`,
	"runtime": `disable_guest_seccomp enable_vcpus_pinning guest_selinux_label enable_tracing
		jaeger_endpoint jaeger_user jaeger_password static_sandbox_resource_mgmt
		sandbox_bind_mounts vfio_mode disable_guest_empty_dir
		emptydir_mode experimental enable_pprof dan_conf kubelet_root_dir pod_resource_api_sock
		experimental_force_guest_pull`,
}

// plannedKeys is planned by full dotted name.
var plannedKeys = func() map[string]bool {
	names := make(map[string]bool)
	for table, list := range planned {
		for name := range strings.FieldsSeq(list) {
			names[table+"."+name] = true
		}
	}
	return names
}()
