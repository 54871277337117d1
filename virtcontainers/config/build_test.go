package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// buildDoc builds from one document on a host with four CPUs.
func buildDoc(doc string) (*Config, error) {
	settings, err := parse("c.toml", 0, []byte(doc))
	if err != nil {
		return nil, err
	}
	return build(settings, 4)
}

// diffConfig compares what callers see, except the origins and the unrounded
// vCPUs, which have separate tests.
func diffConfig(want, got *Config) string {
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{}), cmpopts.IgnoreFields(Config{}, "Origins", "Plain"),
		cmpopts.IgnoreFields(Hypervisor{}, "DefaultVCPUs"))
}

// defaults is the built-in configuration on a host with four CPUs, written
// out: a changed default must be changed here as well.
func defaults() Config {
	return Config{
		Hypervisor: Hypervisor{
			Path:          "/usr/bin/qemu-system-x86_64",
			Kernel:        "/usr/share/kata-containers/vmlinux",
			Initrd:        "/usr/share/kata-containers/initrd.img",
			MachineType:   "q35",
			Threading:     "auto",
			VCPUs:         1,
			MaxVCPUs:      4,
			MemoryMiB:     2048,
			MemorySlots:   10,
			SharedFS:      "virtio-fs",
			VirtioFS:      VirtioFS{Cache: "auto", QueueSize: 1024},
			EntropySource: "/dev/urandom",
			Seccomp:       "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
			Rootless:      true, FirstUID: 1879048192, UIDs: 65536,
			BlockDriver: "virtio-scsi", BlockAIO: "io_uring", DisableBlockRootfs: true,
		},
		Agent: Agent{DialTimeout: 45 * time.Second, HealthInterval: 5 * time.Second, HealthTimeout: 30 * time.Second, KillTimeout: 10 * time.Second},
		Runtime: Runtime{NetworkModel: NetworkTCFilter, CreateContainerTimeout: time.Minute, EmptyDirMode: "shared-fs", KubeletDir: "/var/lib/kubelet", HibernatePath: "/var/lib/kata-containers/hibernation",
			DisableGuestSeccomp: true},
		Factory: Factory{TemplatePath: "/run/vc/vm/template"},
		Annotations: Allowed{
			Enabled:             []string{"enable_iommu", "kernel_params", "kernel_verity_params"},
			HypervisorPaths:     []string{"/usr/bin/qemu-system-x86_64"},
			VirtioFSDaemonPaths: []string{"/usr/lib/qemu/virtiofsd"},
			KernelPaths:         []string{"/usr/share/kata-containers/*", "/opt/kata/share/kata-containers/*"},
			InitrdPaths:         []string{"/usr/share/kata-containers/*", "/opt/kata/share/kata-containers/*"},
			FirmwarePaths: []string{"/usr/share/kata-containers/*", "/opt/kata/share/kata-containers/*",
				"/usr/share/ovmf/*", "/usr/share/OVMF/*", "/usr/share/edk2/ovmf/*"},
			EntropySources: []string{"/dev/urandom", "/dev/random", ""},
			MemBackends:    []string{""},
		},
	}
}

func TestBuild(t *testing.T) {
	const qemu = "[hypervisor.qemu]\n"
	tests := []struct {
		name, doc string
		want      func(*Config)
	}{
		{"nothing", "", func(*Config) {}},
		{"empty tables", "[hypervisor.qemu]\n[agent.kata]\n[runtime]\n[factory]", func(*Config) {}},
		{"empty means default", qemu + "path=''\nkernel=''\ninitrd=''\nmachine_type=''\nshared_fs=''\n" +
			"virtio_fs_cache=''\nvirtio_fs_queue_size=0\ndefault_vcpus=0\n[agent.kata]\ndial_timeout=0\n[runtime]\ncreate_container_timeout=0",
			func(*Config) {}},
		{"paths", qemu + "path='/q'\nkernel='/k'\ninitrd='/i'\nvirtio_fs_daemon='/v'", func(c *Config) {
			c.Hypervisor.Path, c.Hypervisor.Kernel, c.Hypervisor.Initrd, c.Hypervisor.VirtioFS.Daemon = "/q", "/k", "/i", "/v"
		}},
		{"network", qemu + "disable_vhost_net=true\nrx_rate_limiter_max_rate=8192\n" +
			"[runtime]\ninternetworking_model='none'\ndisable_new_netns=true", func(c *Config) {
			c.Hypervisor.DisableVhostNet, c.Hypervisor.RxMaxRate = true, 8192
			c.Runtime.NetworkModel, c.Runtime.DisableNewNetNS = NetworkNone, true
		}},
		{"most of a rate", qemu + "tx_rate_limiter_max_rate=1000000000000000", func(c *Config) { c.Hypervisor.TxMaxRate = 1e15 }},
		{"what empty values mean", qemu + "default_vcpus=0\ntcg_thread=''", func(*Config) {}},
		{"guest", qemu + "guest_hook_path='/usr/share/oci/hooks'\n[runtime]\ndisable_guest_seccomp=false", func(c *Config) {
			c.Hypervisor.GuestHookPath, c.Runtime.DisableGuestSeccomp = "/usr/share/oci/hooks", false
		}},
		{"traces", "[runtime]\nenable_tracing=true\njaeger_endpoint='https://h:4318/v1/traces'\njaeger_user='u'\njaeger_password='p'\n" +
			"[agent.kata]\nenable_tracing=true", func(c *Config) {
			c.Runtime.Tracing, c.Agent.Tracing = Tracing{true, "https://h:4318/v1/traces", "u", "p"}, true
		}},
		{"Jaeger's own format, unused", "[runtime]\njaeger_endpoint='http://h:14268/api/traces'", func(c *Config) {
			c.Runtime.Tracing.Endpoint = "http://h:14268/api/traces"
		}},
		{"a large translation buffer", qemu + "tcg_tb_size=2048", func(c *Config) { c.Hypervisor.TranslationMiB = 2048 }},
		{"a small translation buffer", qemu + "tcg_tb_size=16", func(c *Config) { c.Hypervisor.TranslationMiB = 16 }},
		{"QEMU's own translation buffer", qemu + "tcg_tb_size=0", func(*Config) {}},
		{"vCPUs in parallel", qemu + "tcg_thread='multi'", func(c *Config) { c.Hypervisor.Threading = ThreadingMulti }},
		{"vCPUs in turns", qemu + "tcg_thread='single'", func(c *Config) { c.Hypervisor.Threading = ThreadingSingle }},
		{"versioned board", qemu + "machine_type='pc-q35-7.2'", func(c *Config) { c.Hypervisor.MachineType = "pc-q35-7.2" }},
		{"comma lists are tidied", qemu + "cpu_features=' pmu=off, ,avx512f=off,'\nmachine_accelerators=','", func(c *Config) {
			c.Hypervisor.CPUFeatures = "pmu=off,avx512f=off"
		}},
		{"strings", qemu + "kernel_params='a=b c'\nseccompsandbox='on,spawn=deny'", func(c *Config) {
			c.Hypervisor.KernelParams, c.Hypervisor.Seccomp = "a=b c", "on,spawn=deny"
		}},
		{"QEMU as root", qemu + "rootless=false\nseccompsandbox='off'", func(c *Config) {
			c.Hypervisor.Rootless, c.Hypervisor.Seccomp = false, "off"
			c.Warnings = []string{"hypervisor.qemu.rootless = false: QEMU runs as root with all of the shim's rights"}
		}},
		{"few user ids", qemu + "rootless_first_uid=4294967290\nrootless_uids=5", func(c *Config) {
			c.Hypervisor.FirstUID, c.Hypervisor.UIDs = 4294967290, 4
			c.Warnings = []string{"hypervisor.qemu.rootless_uids = 5 is more than there are from 4294967290 on: using 4"}
		}},
		{"empty means default for users too", qemu + "seccompsandbox=''\nrootless_first_uid=0\nrootless_uids=0", func(*Config) {}},
		{"memory that grows", qemu + "default_maxmemory=4096\nmemory_slots=256\nenable_virtio_mem=true", func(c *Config) {
			c.Hypervisor.MaxMemoryMiB, c.Hypervisor.MemorySlots, c.Hypervisor.VirtioMem = 4096, 256, true
		}},
		{"fraction of a CPU", qemu + "default_vcpus=2.01", func(c *Config) { c.Hypervisor.VCPUs = 3 }},
		{"small fraction of a CPU", qemu + "default_vcpus=1e-300", func(*Config) {}},
		{"zero as a float", qemu + "default_vcpus=0.0", func(*Config) {}},
		{"all CPUs", qemu + "default_vcpus=-1", func(c *Config) { c.Hypervisor.VCPUs = 4 }},
		{"all CPUs, fraction", qemu + "default_vcpus=-0.5", func(c *Config) { c.Hypervisor.VCPUs = 4 }},
		{"all CPUs, but at most two", qemu + "default_vcpus=-1\ndefault_maxvcpus=2", func(c *Config) {
			c.Hypervisor.VCPUs, c.Hypervisor.MaxVCPUs = 2, 2
		}},
		{"more CPUs than the host", qemu + "default_vcpus=1e300\ndefault_maxvcpus=4294967295", func(c *Config) {
			c.Hypervisor.VCPUs = 4
			c.Warnings = []string{
				"hypervisor.qemu.default_maxvcpus = 4294967295 is more than this host can give: using 4",
				"hypervisor.qemu.default_vcpus = 1e+300 is more than default_maxvcpus or the host allow: using 4",
			}
		}},
		{"least memory", qemu + "default_memory=256", func(c *Config) { c.Hypervisor.MemoryMiB = 256 }},
		{"virtio-fs", qemu + "virtio_fs_cache='never'\nvirtio_fs_extra_args=['-o','x']\nvirtio_fs_queue_size=8", func(c *Config) {
			c.Hypervisor.VirtioFS.Cache, c.Hypervisor.VirtioFS.QueueSize = CacheNever, 8
			c.Hypervisor.VirtioFS.ExtraArgs = []string{"-o", "x"}
		}},
		{"disks", qemu + "block_device_driver='virtio-blk'\nblock_device_aio='native'\nblock_device_cache_set=true\nblock_device_cache_direct=true\n" +
			"block_device_cache_noflush=true\nblock_device_logical_sector_size=4096\nblock_device_physical_sector_size=65536\n" +
			"disable_block_device_use=false\nshared_fs='none'", func(c *Config) {
			h := &c.Hypervisor
			h.BlockDriver, h.BlockAIO, h.BlockCache = BlockVirtio, AIONative, BlockCache{true, true, true}
			h.BlockLogicalSector, h.BlockPhysicalSector, h.DisableBlockRootfs, h.SharedFS = 4096, 65536, false, SharedFSNone
		}},
		{"memory", qemu + "enable_mem_prealloc=true\nreclaim_guest_freed_memory=true\nfile_mem_backend='/dev/shm'", func(c *Config) {
			c.Hypervisor.Memory = Memory{Prealloc: true, Dir: "/dev/shm", Reclaim: true}
		}},
		{"huge pages are no files", qemu + "enable_hugepages=true\nfile_mem_backend='/dev/shm'", func(c *Config) {
			c.Hypervisor.Memory = Memory{HugePages: true}
			c.Warnings = []string{`hypervisor.qemu.file_mem_backend = "/dev/shm" is ignored: enable_hugepages takes the memory from huge pages`}
		}},
		{"the machine's devices", qemu + "entropy_source='/dev/hwrng'\nextra_monitor_socket='qmp-pretty'\nenable_iothreads=true\nindep_iothreads=3\n" +
			"guest_memory_dump_path='/var/crash'\nguest_memory_dump_paging=true\nfirmware='/OVMF.fd'",
			func(c *Config) {
				h := &c.Hypervisor
				h.DumpDir, h.DumpPaging, h.Firmware = "/var/crash", true, "/OVMF.fd"
				h.EntropySource, h.ExtraMonitor, h.IOThreads, h.IndepIOThreads = "/dev/hwrng", MonitorQMPPretty, true, 3
			}},
		{"emptyDir by its older name", "[runtime]\ndisable_guest_empty_dir=false\n", func(c *Config) { c.Runtime.EmptyDirMode = EmptyDirBlock }},
		{"volumes", "[runtime]\nemptydir_mode='block-plain'\nkubelet_root_dir='/k'\nsandbox_bind_mounts=['/a','/b:rw','/c:ro']",
			func(c *Config) {
				r := &c.Runtime
				r.EmptyDirMode, r.KubeletDir = EmptyDirBlock, "/k"
				r.SandboxBindMounts = []string{"/a", "/b:rw", "/c:ro"}
			}},
		{"inline tables and dotted keys", "agent = {kata = {kernel_modules = ['a b=c']}}\nruntime.create_container_timeout = 5",
			func(c *Config) {
				c.Agent.KernelModules, c.Runtime.CreateContainerTimeout = []string{"a b=c"}, 5*time.Second
			}},
		{"debug", qemu + "enable_debug=true\n[agent.kata]\nenable_debug=true\n[runtime]\nenable_debug=true", func(c *Config) {
			c.Hypervisor.Debug, c.Agent.Debug, c.Runtime.Debug = true, true, true
		}},
		{"longest timeout", "agent.kata.dial_timeout = 4294967295", func(c *Config) {
			c.Agent.DialTimeout = 4294967295 * time.Second
		}},
		{"a known key that does nothing yet", "runtime.vfio_mode = 'vfio'", func(c *Config) {
			c.Warnings = []string{"keys not implemented yet are ignored: runtime.vfio_mode"}
		}},
		{"templates", "[factory]\nenable_template = true\ntemplate_path = '/t'\nvm_cache_number = 3", func(c *Config) {
			c.Factory = Factory{Template: true, TemplatePath: "/t", VMs: 3}
		}},
		{"an image", qemu + "image='/i'\ninitrd='/rd'", func(c *Config) {
			c.Hypervisor.Initrd = "/rd"
			c.Warnings = []string{"c.toml:2: hypervisor.qemu.image is not implemented yet and is ignored: the guest boots from the initrd /rd"}
		}},
		{"unknown keys", "a=1\n[runtime]\n\nenable_Debug=true\n[x.y.z.'q r']\nv=1\n[\"n\\u0000\"]\n", func(c *Config) {
			c.Warnings = []string{
				"c.toml:1: unknown key a is ignored",
				"c.toml:4: unknown key runtime.enable_Debug is ignored",
				"c.toml:5: unknown key x.y.z is ignored",
				`c.toml:7: unknown key "n\x00" is ignored`,
			}
		}},
		{"other hypervisors", "[hypervisor.clh]\npath='x'\nkernel=3\n[hypervisor.acrn]", func(c *Config) {
			c.Warnings = []string{
				"c.toml:2: table hypervisor.clh is ignored: hypervisor.qemu is the only hypervisor supported",
				"c.toml:4: table hypervisor.acrn is ignored: hypervisor.qemu is the only hypervisor supported",
			}
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			want := defaults()
			test.want(&want)
			got, err := buildDoc(test.doc)
			if err != nil {
				t.Fatal(err)
			}
			if diff := diffConfig(&want, got); diff != "" {
				t.Errorf("build (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	const (
		qemu      = "[hypervisor.qemu]\n"
		at        = "c.toml:2: hypervisor.qemu."
		memory    = ": want an integer number of MiB, at least 256 and at most 16777216"
		vcpus     = ": want a number of vCPUs (a fraction is rounded up), or a negative one for all host CPUs"
		path      = ": want an absolute path"
		list      = ": want a comma separated list"
		text      = ": want a string without control characters"
		sharedFS  = `: want "virtio-fs" or "none"; there is no other shared file system`
		sector    = ": want a power of two from 512 to 65536, or 0 for the disk's own"
		binds     = `: want a list of "path", "path:ro" or "path:rw", each path absolute and not /`
		cache     = `: want one of "never", "metadata", "auto", "always"`
		buffer    = ": want an integer number of MiB from 16 to 2048, or 0 for QEMU's own"
		power     = ": want a power of two from 8 to 1024"
		timeout   = ": want an integer number of seconds, 0 for the default"
		arguments = ": want a list of arguments, none empty"
		bits      = ": want a number of bits per second from 8192 to 1000000000000000, or 0 for no limit"
		module    = `: want a list of "module parameter=value ..." strings`
		board     = `: want "q35", or a versioned "pc-q35-X.Y"; no other board is supported`
		maximum   = ": want an integer number of vCPUs, 0 for all host CPUs"
	)
	tests := []struct{ doc, want string }{
		{qemu + `default_memory = "lots"`, at + `default_memory = "lots"` + memory},
		{qemu + `default_memory = 255`, at + `default_memory = 255` + memory},
		{qemu + `default_memory = 0`, at + `default_memory = 0` + memory},
		{qemu + `default_memory = -1`, at + `default_memory = -1` + memory},
		{qemu + `default_memory = 2048.0`, at + `default_memory = 2048` + memory},
		{qemu + `default_memory = 9223372036854775807`, at + `default_memory = 9223372036854775807` + memory},
		{qemu + `default_vcpus = nan`, at + `default_vcpus = NaN` + vcpus},
		{qemu + `default_vcpus = inf`, at + `default_vcpus = +Inf` + vcpus},
		{qemu + `default_vcpus = "1"`, at + `default_vcpus = "1"` + vcpus},
		{qemu + `default_maxvcpus = -1`, at + `default_maxvcpus = -1` + maximum},
		{qemu + `default_maxvcpus = 4294967296`, at + `default_maxvcpus = 4294967296` + maximum},
		{qemu + `path = "qemu"`, at + `path = "qemu"` + path},
		{qemu + `kernel = "/a\u0000b"`, at + `kernel = "/a\x00b"` + path},
		{qemu + `initrd = true`, at + `initrd = true` + path},
		{qemu + `machine_type = "pc"`, at + `machine_type = "pc"` + board},
		{qemu + `machine_type = "q35,usb=on"`, at + `machine_type = "q35,usb=on"` + board},
		{qemu + `cpu_features = ["pmu=off"]`, at + `cpu_features = ["pmu=off"]` + list},
		{qemu + `kernel_params = "a\nb"`, at + `kernel_params = "a\nb"` + text},
		{qemu + `seccompsandbox = false`, at + `seccompsandbox = false` + text},
		{qemu + `shared_fs = "virtio-9p"`, at + `shared_fs = "virtio-9p"` + sharedFS},
		{qemu + `shared_fs = "9p"`, at + `shared_fs = "9p"` + sharedFS},
		{qemu + `virtio_fs_cache = "none"`, at + `virtio_fs_cache = "none"` + cache},
		{qemu + `tcg_tb_size = 15`, at + `tcg_tb_size = 15` + buffer},
		{qemu + `tcg_tb_size = 2049`, at + `tcg_tb_size = 2049` + buffer},
		{qemu + `tcg_tb_size = -1`, at + `tcg_tb_size = -1` + buffer},
		{qemu + `tcg_thread = "rr"`, at + `tcg_thread = "rr"` + `: want one of "auto", "multi", "single"`},
		{qemu + `virtio_fs_queue_size = 4`, at + `virtio_fs_queue_size = 4` + power},
		{qemu + `virtio_fs_queue_size = 100`, at + `virtio_fs_queue_size = 100` + power},
		{qemu + `virtio_fs_queue_size = 2048`, at + `virtio_fs_queue_size = 2048` + power},
		{qemu + `virtio_fs_queue_size = -9223372036854775808`, at + `virtio_fs_queue_size = -9223372036854775808` + power},
		{qemu + `virtio_fs_extra_args = "-d"`, at + `virtio_fs_extra_args = "-d"` + arguments},
		{qemu + `virtio_fs_extra_args = ["-d", ""]`, at + `virtio_fs_extra_args = ["-d", ""]` + arguments},
		{qemu + `virtio_fs_extra_args = [[[]], 1979-05-27]`, at + `virtio_fs_extra_args = [[...], 1979-05-27]` + arguments},
		{qemu + `enable_debug = "yes"`, at + `enable_debug = "yes"` + ": want true or false"},
		{qemu + `rx_rate_limiter_max_rate = -1`, at + `rx_rate_limiter_max_rate = -1` + bits},
		{qemu + `rx_rate_limiter_max_rate = 8191`, at + `rx_rate_limiter_max_rate = 8191` + bits},
		{qemu + `tx_rate_limiter_max_rate = 1000000000000001`, at + `tx_rate_limiter_max_rate = 1000000000000001` + bits},
		{qemu + `tx_rate_limiter_max_rate = "1G"`, at + `tx_rate_limiter_max_rate = "1G"` + bits},
		{qemu + "tx_rate_limiter_max_rate = 10000\n[runtime]\ninternetworking_model = 'none'", at + `tx_rate_limiter_max_rate = 10000` +
			` with runtime.internetworking_model = "none": want 0 with it, or another model: it is unknown by which interface packets leave`},
		{"runtime.internetworking_model = 'bridged'", `c.toml:1: runtime.internetworking_model = "bridged": want one of "tcfilter", "macvtap", "none"`},
		{"runtime.disable_new_netns = true", `runtime.disable_new_netns = true with runtime.internetworking_model = "tcfilter": want "none" with it`},
		{qemu + `block_device_driver = "nvdimm"`, at + `block_device_driver = "nvdimm"` +
			`: want "virtio-scsi" or "virtio-blk"; disks do not come as nvdimm, virtio-mmio or virtio-blk-ccw`},
		{qemu + `block_device_aio = "posix"`, at + `block_device_aio = "posix": want one of "io_uring", "native", "threads"`},
		{qemu + "block_device_logical_sector_size = 513", at + "block_device_logical_sector_size = 513" + sector},
		{qemu + "block_device_logical_sector_size = 256", at + "block_device_logical_sector_size = 256" + sector},
		{qemu + "block_device_physical_sector_size = 131072", at + "block_device_physical_sector_size = 131072" + sector},
		{qemu + "block_device_physical_sector_size = -512", at + "block_device_physical_sector_size = -512" + sector},
		{qemu + "block_device_logical_sector_size = 4096\nblock_device_physical_sector_size = 512",
			"hypervisor.qemu.block_device_logical_sector_size = 4096 with block_device_physical_sector_size = 512: want it at most as large"},
		{qemu + "entropy_source = 'dev/urandom'", at + `entropy_source = "dev/urandom"` + path},
		{qemu + "file_mem_backend = 'shm'", at + `file_mem_backend = "shm": want an absolute path without .. or similar, or nothing`},
		{qemu + "guest_memory_dump_path = '/a/../b'", at + `guest_memory_dump_path = "/a/../b": want an absolute path without .. or similar, or nothing`},
		{qemu + "firmware = 'OVMF.fd'", at + `firmware = "OVMF.fd": want an absolute path without .. or similar, or nothing`},
		{qemu + "indep_iothreads = 51", at + "indep_iothreads = 51: want an integer from 1 to 50, or 0 for what enable_iothreads says"},
		{qemu + "extra_monitor_socket = 'gdb'", at + `extra_monitor_socket = "gdb": want one of "", "hmp", "qmp", "qmp-pretty"`},
		{qemu + "enable_hugepages = true\nreclaim_guest_freed_memory = true",
			"hypervisor.qemu.enable_hugepages = true with reclaim_guest_freed_memory = true: want one of them: " +
				"huge pages are the guest's as long as it has them"},
		{"runtime.emptydir_mode = 'block-encrypted'", `c.toml:1: runtime.emptydir_mode = "block-encrypted": want "shared-fs" or "block-plain"; ` +
			`nothing here encrypts disks for "block-encrypted"`},
		{"runtime.disable_guest_empty_dir = 1", "c.toml:1: runtime.disable_guest_empty_dir = 1: want true or false"},
		{"runtime.kubelet_root_dir = '/a/../b'", `c.toml:1: runtime.kubelet_root_dir = "/a/../b": want an absolute path without .. or similar`},
		{"runtime.sandbox_bind_mounts = ['/a:rw', '/b']\nhypervisor.qemu.shared_fs = 'none'", `c.toml:1: runtime.sandbox_bind_mounts = ["/a:rw", "/b"] ` +
			`with hypervisor.qemu.shared_fs = "none": want "virtio-fs" with it, or no mounts`},
		{qemu + "kernel_params = '" + strings.Repeat("x", 2048) + "'", "c.toml:2: hypervisor.qemu.kernel_params has 2048 bytes: " +
			"want at most 2047 with the parameters that every guest has"},
		{"runtime.sandbox_bind_mounts = ['/']", `c.toml:1: runtime.sandbox_bind_mounts = ["/"]` + binds},
		{"runtime.sandbox_bind_mounts = ['/a', 'b:rw']", `c.toml:1: runtime.sandbox_bind_mounts = ["/a", "b:rw"]` + binds},
		{"runtime.sandbox_bind_mounts = ['/a/../b:ro']", `c.toml:1: runtime.sandbox_bind_mounts = ["/a/../b:ro"]` + binds},
		{"runtime.sandbox_bind_mounts = ['/a:ro:rw']", `c.toml:1: runtime.sandbox_bind_mounts = ["/a:ro:rw"]` + binds},
		{"agent.kata.kernel_modules = ['../x']", `c.toml:1: agent.kata.kernel_modules = ["../x"]` + module},
		{"agent.kata.kernel_modules = [' ']", `c.toml:1: agent.kata.kernel_modules = [" "]` + module},
		{"agent.kata.dial_timeout = -1", "c.toml:1: agent.kata.dial_timeout = -1" + timeout},
		{"agent.kata.dial_timeout = 1.5", "c.toml:1: agent.kata.dial_timeout = 1.5" + timeout},
		{"agent.kata.dial_timeout = 4294967296", "c.toml:1: agent.kata.dial_timeout = 4294967296" + timeout},
		{"\nruntime = 3", "c.toml:2: runtime = 3: want a table"},
		{"[[runtime]]\nenable_debug=true", "c.toml:1: runtime = [{...}]: want a table"},
		{"[runtime.enable_debug.x]", "c.toml:1: runtime.enable_debug = {...}: want true or false"},
		{"hypervisor.qemu = 'x'", `c.toml:1: hypervisor.qemu = "x": want a table`},
		{qemu + "path = '" + strings.Repeat("ä", 100) + "'", at + `path = "` + strings.Repeat("ä", 39) + "..." + path},
		{
			"agent = {kata = {dial_timeout = 'x'}}\n[hypervisor.qemu]\n\npath = 'x'\n\n[runtime]\nenable_debug = 0",
			`c.toml:1: agent.kata.dial_timeout = "x"` + timeout + "\n" +
				`c.toml:4: hypervisor.qemu.path = "x"` + path + "\n" +
				"c.toml:7: runtime.enable_debug = 0: want true or false",
		},
		{"[runtime\n", "c.toml:1:9: toml: expected ']' to close table name"},
		{"\n  a = 1\n  a = 2\n", "c.toml:3:3: toml: "},
		{"a = \"\xff\"", "c.toml:1:6: toml: "},
		{"a = 9223372036854775808", "c.toml:1:5: toml: "},
	}
	for _, test := range tests {
		config, err := buildDoc(test.doc)
		if err == nil {
			t.Errorf("%q gives a Config: %+v", test.doc, config)
			continue
		}
		got := err.Error()
		if strings.HasSuffix(test.want, "toml: ") {
			// What follows is the parser's wording.
			got = got[:min(len(got), len(test.want))]
		}
		if got != test.want {
			t.Errorf("%q\n got  %s\n want %s", test.doc, got, test.want)
		}
	}
}

func TestMergeLastWins(t *testing.T) {
	docs := []string{
		"[hypervisor.qemu]\ndefault_memory = 'overridden, so never judged'\ndefault_vcpus = 2\nvirtio_fs_extra_args=['a']",
		"hypervisor.qemu.default_memory = 512\n[agent.kata]\ndial_timeout = 7",
		"[hypervisor.qemu]\nvirtio_fs_extra_args=['b', 'c']",
	}
	var settings []setting
	for order, doc := range docs {
		more, err := parse("f", order, []byte(doc))
		if err != nil {
			t.Fatal(err)
		}
		settings = append(settings, more...)
	}
	want := defaults()
	want.Hypervisor.MemoryMiB, want.Hypervisor.VCPUs = 512, 2
	want.Hypervisor.VirtioFS.ExtraArgs = []string{"b", "c"}
	want.Agent.DialTimeout = 7 * time.Second
	got, err := build(settings, 4)
	if err != nil {
		t.Fatal(err)
	}
	if diff := diffConfig(&want, got); diff != "" {
		t.Errorf("build (-want +got):\n%s", diff)
	}
}

func TestHostsOfAnySize(t *testing.T) {
	for _, test := range []struct {
		cpus int
		want uint32
	}{{0, 1}, {1, 1}, {240, 240}, {512, 240}} {
		config, err := build(nil, test.cpus)
		if err != nil || config.Hypervisor.MaxVCPUs != test.want || config.Hypervisor.VCPUs != 1 {
			t.Errorf("%d CPUs: %d of %d vCPUs, %v; want 1 of %d",
				test.cpus, config.Hypervisor.VCPUs, config.Hypervisor.MaxVCPUs, err, test.want)
		}
	}
}

func TestVCPUsBeforeRounding(t *testing.T) {
	for _, test := range []struct {
		doc, annotation string
		want            float64
	}{
		{"", "", 1},
		{"default_vcpus=0.5", "", 0.5},
		{"default_vcpus=2.25\ndefault_maxvcpus=3", "", 2.25},
		{"default_vcpus=2.25\ndefault_maxvcpus=2", "", 2},
		{"default_vcpus=-0.5", "", 4},
		{"default_vcpus=100", "", 4},
		{"default_vcpus=0.5", "1.5", 1.5},
	} {
		got, err := buildDoc("[hypervisor.qemu]\n" + test.doc)
		if err != nil {
			t.Fatal(err)
		}
		annotations := map[string]string{}
		if test.annotation != "" {
			annotations["com.github.containers.virtcontainers.sandbox_cpu"] = test.annotation
		}
		if got, err = got.Annotate(annotations); err != nil {
			t.Fatal(err)
		}
		if got.Hypervisor.DefaultVCPUs != test.want {
			t.Errorf("%q, %q: %v, want %v", test.doc, test.annotation, got.Hypervisor.DefaultVCPUs, test.want)
		}
	}
}

func TestBlockThreads(t *testing.T) {
	for _, test := range []struct {
		on          bool
		indep, want uint32
	}{{false, 0, 0}, {true, 0, 1}, {false, 4, 4}, {true, 4, 4}} {
		if got := (Hypervisor{IOThreads: test.on, IndepIOThreads: test.indep}).BlockThreads(); got != test.want {
			t.Errorf("%+v: %d", test, got)
		}
	}
}
