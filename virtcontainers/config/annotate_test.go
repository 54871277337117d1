package config

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	hv   = "io.katacontainers.config.hypervisor."
	rt   = "io.katacontainers.config.runtime."
	ag   = "io.katacontainers.config.agent."
	fork = "com.github.containers.virtcontainers."
)

// everything is a configuration file that enables all annotations.
const everything = "[hypervisor.qemu]\nenable_annotations = ['.*']\n" +
	"valid_hypervisor_paths = ['/usr/bin/qemu-*', '/opt/*/*']\nvalid_virtio_fs_daemon_paths = ['/usr/libexec/virtiofsd']\n" +
	"valid_kernel_paths = ['/k', '/a', '/b']\nvalid_initrd_paths = ['/i']\nvalid_firmware_paths = ['/f']\n"

// annotate builds a document for a host with four CPUs and applies annotations.
func annotate(t *testing.T, doc string, annotations map[string]string) (before, after *Config, err error) {
	t.Helper()
	before, err = buildDoc(doc)
	if err != nil {
		t.Fatal(err)
	}
	after, err = before.Annotate(annotations)
	return before, after, err
}

func TestAnnotate(t *testing.T) {
	tests := []struct {
		name        string
		annotations map[string]string
		want        func(*Config)
	}{
		{"none", nil, func(*Config) {}},
		{"others' are passed over", map[string]string{"io.kubernetes.cri.sandbox-memory": "x", "io.katacontainersx": "", "": ""}, func(*Config) {}},
		{"sizes", map[string]string{hv + "default_vcpus": "1.5", hv + "default_max_vcpus": "3", hv + "default_memory": "512"}, func(c *Config) {
			c.Hypervisor.VCPUs, c.Hypervisor.MaxVCPUs, c.Hypervisor.MemoryMiB = 2, 3, 512
		}},
		{"all CPUs", map[string]string{hv + "default_vcpus": "-1", hv + "default_max_vcpus": "0"}, func(c *Config) {
			c.Hypervisor.VCPUs = 4
		}},
		{"zero and empty mean unset", map[string]string{hv + "default_vcpus": "0", hv + "path": "", hv + "machine_type": ""}, func(*Config) {}},
		{"paths", map[string]string{hv + "path": "/usr/bin/qemu-mine", hv + "kernel": "/k", hv + "initrd": "/i", hv + "firmware": "/f",
			hv + "virtio_fs_daemon": "/usr/libexec/virtiofsd"}, func(c *Config) {
			c.Hypervisor.Path, c.Hypervisor.Kernel, c.Hypervisor.Initrd = "/usr/bin/qemu-mine", "/k", "/i"
			c.Hypervisor.Firmware, c.Hypervisor.VirtioFS.Daemon = "/f", "/usr/libexec/virtiofsd"
		}},
		{"what is added", map[string]string{hv + "kernel_params": " more=1", hv + "virtio_fs_extra_args": `["-o","writeback,no_xattr"]`}, func(c *Config) {
			c.Hypervisor.KernelParams = "file=1  more=1"
			c.Hypervisor.VirtioFS.ExtraArgs = []string{"--file", "-o", "writeback,no_xattr"}
		}},
		{"what is replaced", map[string]string{hv + "cpu_features": "pmu=off, ", hv + "machine_type": "pc-q35-7.2", hv + "virtio_fs_cache": "never",
			ag + "kernel_modules": "e1000e EEE=1; i915 ;"}, func(c *Config) {
			c.Hypervisor.CPUFeatures, c.Hypervisor.MachineType, c.Hypervisor.VirtioFS.Cache = "pmu=off", "pc-q35-7.2", CacheNever
			c.Agent.KernelModules = []string{"e1000e EEE=1", "i915"}
		}},
		{"network", map[string]string{rt + "internetworking_model": "none", rt + "disable_new_netns": "1", hv + "disable_vhost_net": "TRUE",
			hv + "rx_rate_limiter_max_rate": "10000"}, func(c *Config) {
			c.Runtime.NetworkModel, c.Runtime.DisableNewNetNS = NetworkNone, true
			c.Hypervisor.DisableVhostNet, c.Hypervisor.RxMaxRate = true, 10000
		}},
		{"disks", map[string]string{hv + "block_device_driver": "virtio-blk", hv + "block_device_aio": "threads", hv + "block_device_cache_set": "1",
			hv + "block_device_cache_noflush": "true", hv + "blk_physical_sector_size": "4096", hv + "disable_block_device_use": "false",
			hv + "shared_fs": "none"}, func(c *Config) {
			h := &c.Hypervisor
			h.BlockDriver, h.BlockAIO, h.BlockCache = BlockVirtio, AIOThreads, BlockCache{Set: true, NoFlush: true}
			h.BlockPhysicalSector, h.DisableBlockRootfs, h.SharedFS = 4096, false, SharedFSNone
		}},
		{"memory and devices", map[string]string{hv + "enable_mem_prealloc": "true", hv + "reclaim_guest_freed_memory": "true",
			hv + "file_mem_backend": "/mnt/a", hv + "entropy_source": "/dev/random", hv + "enable_iothreads": "true", hv + "indep_iothreads": "2"}, func(c *Config) {
			h := &c.Hypervisor
			h.Memory = Memory{Prealloc: true, Dir: "/mnt/a", Reclaim: true}
			h.EntropySource, h.IOThreads, h.IndepIOThreads = "/dev/random", true, 2
		}},
		{"a jail", map[string]string{hv + "rootless": "true"}, func(*Config) {}},
		{"no template", map[string]string{annotationPrefix + "config.factory.enable_template": "false"}, func(*Config) {}},
		{"huge pages", map[string]string{hv + "enable_hugepages": "true"}, func(c *Config) { c.Hypervisor.Memory.HugePages = true }},
		{"runtime", map[string]string{rt + "create_container_timeout": "7", rt + "sandbox_cgroup_only": "true", "io.katacontainers.enable_vcpus_pinning": "true"}, func(c *Config) {
			c.Runtime.CreateContainerTimeout, c.Runtime.SandboxCgroupOnly, c.Runtime.PinVCPUs = 7*time.Second, true, true
		}},
		{"openEuler's size", map[string]string{fork + "sandbox_cpu": "0.5", fork + "sandbox_mem": "4G"}, func(c *Config) {
			c.Hypervisor.VCPUs, c.Hypervisor.MemoryMiB = 1, 4096
		}},
		{"openEuler's size in bytes", map[string]string{fork + "sandbox_cpu": "4", fork + "sandbox_mem": "536870913"}, func(c *Config) {
			c.Hypervisor.VCPUs, c.Hypervisor.MemoryMiB = 4, 513
		}},
		{"old names", map[string]string{fork + "KernelPath": "/k", fork + "InitrdPath": "/i", "io.kata-containers.config.hypervisor.default_memory": "300",
			fork + "KernelModules": "a", fork + "pkg.oci.container_type": "pod_sandbox"}, func(c *Config) {
			c.Hypervisor.Kernel, c.Hypervisor.Initrd, c.Hypervisor.MemoryMiB = "/k", "/i", 300
			c.Agent.KernelModules = []string{"a"}
		}},
		{"twice the same", map[string]string{fork + "KernelPath": "/k", hv + "kernel": "/k"}, func(c *Config) { c.Hypervisor.Kernel = "/k" }},
		{"without effect", map[string]string{
			hv + "enable_iommu": "true", rt + "guest_selinux_label": "x", hv + "use_vsock": "true",
			"io.katacontainers.container.resource.swappiness": "60", rt + "nonsense": "1", "io.katacontainers.x\n": "", fork + "files_limit": "1",
		}, func(c *Config) {
			c.Warnings = append(c.Warnings,
				"unknown annotation com.github.containers.virtcontainers.files_limit is ignored",
				"annotation io.katacontainers.config.hypervisor.use_vsock is ignored: the agent is always reached by vsock",
				"unknown annotation io.katacontainers.config.runtime.nonsense is ignored",
				"annotation io.katacontainers.container.resource.swappiness is ignored: guests have no swap yet",
				`unknown annotation "io.katacontainers.x\n" is ignored`,
				"annotations not implemented yet are ignored: io.katacontainers.config.hypervisor.enable_iommu, io.katacontainers.config.runtime.guest_selinux_label",
			)
		}},
	}
	doc := everything + "valid_file_mem_backends=['/mnt/*']\nkernel_params='file=1'\nvirtio_fs_extra_args=['--file']\nno_such_key=1\n[agent.kata]\nkernel_modules=['m']"
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			before, got, err := annotate(t, doc, test.annotations)
			if err != nil {
				t.Fatal(err)
			}
			want, err := buildDoc(doc)
			if err != nil {
				t.Fatal(err)
			}
			if diff := diffConfig(want, before); diff != "" {
				t.Errorf("the configuration has changed (-want +got):\n%s", diff)
			}
			if got.Plain != before {
				t.Error("the configuration before the annotations is not known any more")
			}
			test.want(want)
			if diff := diffConfig(want, got); diff != "" {
				t.Errorf("annotate (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnnotateRefuses(t *testing.T) {
	const memory = ": want an integer number of MiB, at least 256 and at most 16777216"
	const hashes = "files are not checked by their hash; let the valid_* lists name no file that pods may not choose"
	tests := []struct{ doc, name, value, want string }{
		{"", hv + "default_memory", "512", `is not enabled: want an expression in hypervisor.qemu.enable_annotations (default) that matches all of "default_memory"`},
		{"\nhypervisor.qemu.enable_annotations = ['path']", hv + "kernel", "/k", `is not enabled: want an expression in hypervisor.qemu.enable_annotations (c.toml:2) that matches all of "kernel"`},
		{"", hv + "use_vsock", "true", `is not enabled: want an expression in hypervisor.qemu.enable_annotations (default) that matches all of "use_vsock"`},
		{"", fork + "KernelPath", "/k", `is not enabled: want an expression in hypervisor.qemu.enable_annotations (default) that matches all of "kernel"`},
		{"\nhypervisor.qemu.enable_annotations = ['kernel', 'kernel_p']", hv + "kernel_params", "k", `is not enabled: want an expression in hypervisor.qemu.enable_annotations (c.toml:2) that matches all of "kernel_params"`},
		{"", hv + "nonsense", "1", "is unknown: want one of the annotations in docs/configuration.md"},
		{everything, hv + "Kernel", "/k", "is unknown: want one of the annotations in docs/configuration.md"},
		{everything, hv, "/k", "is unknown: want one of the annotations in docs/configuration.md"},
		{everything, hv + "msize_9p", "8192", "is refused: there is no 9p: the guest sees the host's directories by virtio-fs"},
		{everything, hv + "kernel_hash", "00", "is refused: " + hashes},
		{everything, fork + "AssetHashType", "sha512", "is refused: " + hashes},
		{everything, ag + "policy", "cGFja2FnZQ==", "is refused: the agent has no policy engine"},
		{everything, "io.katacontainers.config_path", "/c.toml", "is refused: only the engine names the configuration file (containerd's ConfigPath option)"},
		{"", fork + "static_devices", "{}", "is refused: devices of the host are not given to guests by annotation"},
		{"", fork + "storage_spec", "{}", "is refused: volumes are the mounts of the container's spec"},
		{everything, hv + "default_memory", "255", memory},
		{everything, hv + "default_memory", "512M", memory},
		{everything, hv + "default_memory", "", memory},
		{everything, hv + "default_memory", "9223372036854775808", memory},
		{everything, hv + "default_vcpus", "NaN", ": want a number of vCPUs (a fraction is rounded up), or a negative one for all host CPUs"},
		{everything, hv + "default_vcpus", "4.1", ": want at most 4, which default_maxvcpus and this host allow"},
		{everything + "default_maxvcpus=2", fork + "sandbox_cpu", "3", ": want at most 2, which default_maxvcpus and this host allow"},
		{everything, hv + "default_max_vcpus", "5", ": want at most 4, the vCPUs that this host can give"},
		{everything, hv + "path", "/bin/sh", "is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_hypervisor_paths (c.toml:3)"},
		{everything, hv + "path", "/opt/../evil", "is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_hypervisor_paths (c.toml:3)"},
		{everything, hv + "virtio_fs_daemon", "/usr/lib/qemu/virtiofsd", "is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_virtio_fs_daemon_paths (c.toml:4)"},
		{everything, hv + "kernel", "k", "is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_kernel_paths (c.toml:5)"},
		{everything, hv + "kernel", "/etc/shadow", "is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_kernel_paths (c.toml:5)"},
		{everything, fork + "KernelPath", "/etc/shadow", "is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_kernel_paths (c.toml:5)"},
		{everything, hv + "initrd", "/etc/shadow", "is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_initrd_paths (c.toml:6)"},
		{everything, hv + "firmware", "/etc/shadow", "is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_firmware_paths (c.toml:7)"},
		{anything, hv + "kernel", "/usr/share/kata-containers/../../../etc/shadow",
			"is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_kernel_paths (default)"},
		{everything, hv + "kernel_params", "a\nb", ": want a string without control characters"},
		{everything, hv + "virtio_fs_extra_args", "-o x", ": want a JSON list of arguments, none empty"},
		{everything, hv + "virtio_fs_extra_args", `[""]`, ": want a JSON list of arguments, none empty"},
		{everything, hv + "block_device_driver", "virtio-mmio",
			`: want "virtio-scsi" or "virtio-blk"; disks do not come as nvdimm, virtio-mmio or virtio-blk-ccw`},
		{everything, hv + "blk_logical_sector_size", "1000", ": want a power of two from 512 to 65536, or 0 for the disk's own"},
		{everything, hv + "entropy_source", "/etc/shadow",
			"is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_entropy_sources (default)"},
		{everything, hv + "file_mem_backend", "/dev/shm",
			"is not allowed: want a path that matches a pattern in hypervisor.qemu.valid_file_mem_backends (default)"},
		{everything, hv + "indep_iothreads", "51", ": want an integer from 1 to 50, or 0 for what enable_iothreads says"},
		{"factory.enable_template = true", annotationPrefix + "config.factory.enable_template", "true",
			"is not allowed: want false: only the configuration file can turn templates on"},
		{everything, hv + "rootless", "false", "is not allowed: want true: only the configuration file can run QEMU as root"},
		{everything + "rootless = false", hv + "rootless", "0", "is not allowed: want true: only the configuration file can run QEMU as root"},
		{everything, hv + "disable_vhost_net", "yes", ": want true or false"},
		{"", ag + "kernel_modules", " ; ", `: want "module parameter=value ..." with ";" between modules`},
		{"", ag + "kernel_modules", "../x", `: want "module parameter=value ..." with ";" between modules`},
		{"", rt + "create_container_timeout", "-1", ": want an integer number of seconds, at most 86400, 0 for the default"},
		{"", rt + "create_container_timeout", "86401", ": want an integer number of seconds, at most 86400, 0 for the default"},
		{"", rt + "internetworking_model", "bridged", `: want one of "tcfilter", "macvtap", "none"`},
		{"", fork + "sandbox_cpu", "0.4", ": want a number of vCPUs, at least 0.5 (a fraction is rounded up)"},
		{"", fork + "sandbox_cpu", "inf", ": want a number of vCPUs, at least 0.5 (a fraction is rounded up)"},
		{"", fork + "sandbox_mem", "255M", ": want bytes, or a number with K, M, G or T, at least 256M and at most 16T"},
		{"", fork + "sandbox_mem", "17T", ": want bytes, or a number with K, M, G or T, at least 256M and at most 16T"},
		{"", fork + "sandbox_mem", "9223372036854775807T", ": want bytes, or a number with K, M, G or T, at least 256M and at most 16T"},
		{"", fork + "sandbox_mem", "", ": want bytes, or a number with K, M, G or T, at least 256M and at most 16T"},
		{"", fork + "sandbox_mem", "1.5G", ": want bytes, or a number with K, M, G or T, at least 256M and at most 16T"},
	}
	for _, test := range tests {
		_, got, err := annotate(t, test.doc, map[string]string{test.name: test.value})
		if err == nil {
			t.Errorf("%s = %q gives %+v", test.name, test.value, got)
			continue
		}
		want := test.want
		if !strings.HasPrefix(want, ":") {
			want = " " + want
		}
		want = "annotation " + test.name + " = " + show(test.value) + want
		if err.Error() != want {
			t.Errorf("%s = %q\n got  %s\n want %s", test.name, test.value, err, want)
		}
	}
}

func TestAnnotateReportsAllAtOnce(t *testing.T) {
	_, _, err := annotate(t, everything, map[string]string{
		rt + "disable_new_netns": "true", hv + "kernel": "/a", fork + "KernelPath": "/b", hv + "initrd\n": "x",
	})
	want := strings.Join([]string{
		`annotation ` + `"` + hv + `initrd\n" = "x" is unknown: want one of the annotations in docs/configuration.md`,
		`annotation ` + hv + `kernel = "/a" contradicts annotation ` + fork + `KernelPath = "/b": want one of them`,
		`runtime.disable_new_netns = true with runtime.internetworking_model = "tcfilter": want "none" with it`,
	}, "\n")
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	// The first error's name is sorted by its bytes: "initrd\n" before "kernel".
	if strings.Join(lines, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", err, want)
	}
}

func TestCheckContainer(t *testing.T) {
	warnings, err := CheckContainer(map[string]string{
		hv + "default_memory": "x", fork + "sandbox_mem": "x", fork + "static_devices": "x", "io.katacontainers.container.resource.swappiness": "60",
	})
	want := []string{"annotation io.katacontainers.container.resource.swappiness is ignored: guests have no swap yet"}
	if diff := cmp.Diff(want, warnings); diff != "" || err != nil {
		t.Errorf("%v; warnings (-want +got):\n%s", err, diff)
	}
	_, err = CheckContainer(map[string]string{fork + "storage_spec": "{}"})
	if err == nil || err.Error() != "annotation "+fork+`storage_spec = "{}" is refused: volumes are the mounts of the container's spec` {
		t.Errorf("storage_spec: %v", err)
	}
}

// A Config made as a literal, not by Load, can be annotated too.
func TestAnnotateAnyConfig(t *testing.T) {
	c := defaults()
	got, err := c.Annotate(map[string]string{ag + "kernel_modules": "a"})
	if err != nil || len(got.Agent.KernelModules) != 1 || c.Origins != nil {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestExpressionsMatchWholeNames(t *testing.T) {
	for _, test := range []struct {
		expression, name string
		want             bool
	}{
		{"kernel", "kernel", true},
		{"kernel", "kernel_params", false},
		{"kernel|path", "virtio_path", false},
		{"kernel|path", "path", true},
		{"^kernel$", "kernel", true},
		{"kernel.*", "kernel_params", true},
		{"virtio_.*", "enable_virtio_mem", false},
		{".*", "path", true},
		{"", "path", false},
	} {
		if got := enabled([]string{"x", test.expression}, test.name); got != test.want {
			t.Errorf("%q for %q: %v", test.expression, test.name, got)
		}
	}
}

// An enable_annotations list written for Kata Containers, which matches parts
// of names, gets a warning about what it no longer enables; a list of full
// names gets none.
func TestExpressionsThatMatchPartsOnlyAreToldOf(t *testing.T) {
	for list, want := range map[string]string{
		"'default_'": `c.toml:2: hypervisor.qemu.enable_annotations has "default_", which matches only a part of default_max_vcpus or of others: ` +
			`it enables nothing; write the whole name, or ".*default_.*"`,
		"'virtio_mem', 'path'": `c.toml:2: hypervisor.qemu.enable_annotations has "virtio_mem", which matches only a part of enable_virtio_mem or of others: ` +
			`it enables nothing; write the whole name, or ".*virtio_mem.*"`,
		"'kernel', '.*_vcpus', 'of_the_future'": "",
	} {
		got, err := buildDoc("\nhypervisor.qemu.enable_annotations = [" + list + "]")
		if err != nil {
			t.Errorf("%s: %v", list, err)
			continue
		}
		if told := strings.Join(got.Warnings, "\n"); told != want {
			t.Errorf("%s\n got  %s\n want %s", list, told, want)
		}
	}
}

// What the file's values were warned of is not said again for each pod.
func TestAnnotateRepeatsNoWarning(t *testing.T) {
	_, got, err := annotate(t, "[hypervisor.qemu]\nrootless = false\ndefault_maxvcpus = 239", map[string]string{rt + "disable_guest_seccomp": "false"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"hypervisor.qemu.default_maxvcpus = 239 is more than this host can give: using 4",
		"hypervisor.qemu.rootless = false: QEMU runs as root with all of the shim's rights",
	}
	if diff := cmp.Diff(want, got.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

// A pod may have its QEMU jailed where the file jails none.
func TestAnnotateRootless(t *testing.T) {
	_, got, err := annotate(t, everything+"rootless = false", map[string]string{hv + "rootless": "true"})
	if err != nil {
		t.Fatal(err)
	}
	if !got.Hypervisor.Rootless {
		t.Error("QEMU is root")
	}
}

// FuzzAnnotate feeds any annotation to a configuration that enables all: the
// answer is an error or a Config whose promises hold.
func FuzzAnnotate(f *testing.F) {
	for _, name := range slices.Sorted(maps.Keys(annotationsByName)) {
		f.Add(name, "1", everything)
	}
	for _, old := range slices.Sorted(maps.Keys(oldNames)) {
		f.Add(fork+old, "/x", "")
	}
	f.Add(fork+"sandbox_mem", "4G", everything)
	f.Add(hv+"virtio_fs_extra_args", `["-o","x"]`, everything)
	f.Add(hv+"path", "/opt/a/b", everything)
	f.Add(hv+"rootless", "false", everything)
	f.Fuzz(func(t *testing.T, name, value, doc string) {
		base, err := buildDoc(doc)
		if err != nil {
			return
		}
		before, err := json.Marshal(base)
		if err != nil {
			t.Fatal(err)
		}
		got, err := base.Annotate(map[string]string{name: value, "io.katacontainers.config.agent.kernel_modules": "m"})
		if after, _ := json.Marshal(base); string(after) != string(before) {
			t.Errorf("the configuration has changed: %s, was %s", after, before)
		}
		if err != nil {
			return
		}
		checkPromises(t, got, 4)
		if h := got.Hypervisor; h.Path != base.Hypervisor.Path && !matchesAny(base.Annotations.HypervisorPaths, h.Path) {
			t.Errorf("hypervisor %q", h.Path)
		}
		if h := got.Hypervisor.VirtioFS; h.Daemon != base.Hypervisor.VirtioFS.Daemon && !matchesAny(base.Annotations.VirtioFSDaemonPaths, h.Daemon) {
			t.Errorf("daemon %q", h.Daemon)
		}
		if base.Hypervisor.Rootless && !got.Hypervisor.Rootless {
			t.Error("the pod's QEMU is root")
		}
	})
}
