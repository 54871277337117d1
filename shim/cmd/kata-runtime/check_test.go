package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor"
	"github.com/katabox/katabox/hypervisor/vsock"
	"github.com/katabox/katabox/virtcontainers/config"
)

func TestCheckGood(t *testing.T) {
	file := configure(t, "")
	out, errs, code := call(t, newFakeHost(t).host, "check", "--config", file)
	if code != 0 || errs != "" {
		t.Errorf("exit %d, %q", code, errs)
	}
	golden(t, "check-good.txt", shorten(out, file))
}

// shorten removes the directory of a test's configuration file from the output.
func shorten(out, file string) string { return strings.ReplaceAll(out, filepath.Dir(file), "DIR") }

// translated is a host without KVM.
func translated() (hypervisor.Accel, string) {
	return hypervisor.AccelTCG, "KVM cannot be used: no reason"
}

// bad makes a host on which every check fails.
func bad(t *testing.T) *fakeHost {
	f := newFakeHost(t)
	f.files = fstest.MapFS{
		"usr/share/kata-containers/initrd.img/x": {},
		"proc/meminfo":                           {Data: []byte("MemAvailable:    102400 kB\n")},
		"proc/config.gz":                         {Data: packed(t, "CONFIG_NET_CLS_U32=y\n# CONFIG_NET_ACT_MIRRED is not set\n")},
		"proc/sys/user/max_user_namespaces":      {Data: []byte("0\n")},
	}
	f.programs = map[string]string{"/usr/bin/qemu-system-x86_64": "QEMU emulator version 6.2.0\n"}
	f.accel = translated
	f.vsockKind = func(context.Context) (string, error) { return "", errors.New("open vsock: injected") }
	f.openDevice = func(string) error { return unix.ENOENT }
	f.lookPath = func(string) (string, error) { return "", unix.ENOENT }
	f.skLookup = func() error { return errors.New("program type: not supported") }
	f.uid = 1000
	return f
}

func TestCheckBad(t *testing.T) {
	h := bad(t).host
	file := configure(t, "[runtime]\nvfio_mode = 'vfio'\n")
	out, errs, code := call(t, h, "check", "--config", file)
	if code != 1 || errs != "" {
		t.Errorf("exit %d, %q", code, errs)
	}
	golden(t, "check-bad.txt", shorten(out, file))

	out, errs, code = call(t, h, "check", "--json", "--config", file)
	if code != 1 || errs != "" {
		t.Errorf("JSON: exit %d, %q", code, errs)
	}
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil || r.CanRun || len(r.Checks) < 10 {
		t.Errorf("%+v, %v", r, err)
	}
	for _, c := range r.Checks {
		if c.Status != ok && (c.Means == "" || c.Do == "") {
			t.Errorf("%s is %s, and what to do is not said: %+v", c.Name, c.Status, c)
		}
	}
}

func TestCheckWithoutConfiguration(t *testing.T) {
	file := configure(t, "[hypervisor.qemu]\ndefault_memory = 'x'\npath = 'y'")
	out, errs, code := call(t, newFakeHost(t).host, "check", "--config", file)
	if code != 1 || errs != "" {
		t.Errorf("exit %d, %q", code, errs)
	}
	golden(t, "check-config.txt", shorten(out, file))
}

// lacksDevice gives the host a QEMU that was built without a device.
func lacksDevice(name string) func(*testing.T, *fakeHost) {
	return func(_ *testing.T, f *fakeHost) {
		f.output = answering(f.output, "-device", strings.ReplaceAll(allDevices, fmt.Sprintf("%q", name), `"x"`))
	}
}

// answering makes QEMU list something else.
func answering(output func(context.Context, string, ...string) (string, error), option, list string) func(context.Context, string, ...string) (string, error) {
	return func(ctx context.Context, name string, args ...string) (string, error) {
		if slices.Equal(args, []string{option, "help"}) {
			return list, nil
		}
		return output(ctx, name, args...)
	}
}

// refusing makes one file unreadable.
func refusing(open func(string) (io.ReadCloser, error), path string) func(string) (io.ReadCloser, error) {
	return func(name string) (io.ReadCloser, error) {
		if name == path {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrPermission}
		}
		return open(name)
	}
}

func isScript(path string) error { return fmt.Errorf("%s is a script", path) }

// Without a root directory for each QEMU, the program may be a wrapper script.
func TestCheckQEMUAsRoot(t *testing.T) {
	f := newFakeHost(t)
	f.jailable = isScript
	cfg, err := config.Load(configure(t, "hypervisor.qemu.rootless = false"))
	if err != nil {
		t.Fatal(err)
	}
	if r := f.checkQEMU(t.Context(), cfg); r.Status != ok {
		t.Errorf("%+v", r)
	}
}

// Each change alone produces that status and those words.
func TestChecks(t *testing.T) {
	tests := []struct {
		name   string
		change func(*testing.T, *fakeHost)
		config string
		check  string
		status status
		words  string
	}{
		{"own vsock", func(_ *testing.T, f *fakeHost) {
			f.vsockKind = func(context.Context) (string, error) { return vsock.KindVhostUser, nil }
		}, "", "vsock", ok, "in the shim itself"},
		{"old QEMU", func(_ *testing.T, f *fakeHost) {
			f.programs["/usr/bin/qemu-system-x86_64"] = "QEMU emulator version 7.1.0"
		}, "", "QEMU", warning, "older than 7.2"},
		{"odd QEMU", func(_ *testing.T, f *fakeHost) { f.programs["/usr/bin/qemu-system-x86_64"] = "hello" }, "", "QEMU", warning, "it is unknown whether"},
		{"new QEMU", func(_ *testing.T, f *fakeHost) {
			f.programs["/usr/bin/qemu-system-x86_64"] = "QEMU emulator version 10.0.2"
		}, "", "QEMU", ok, "10.0.2"},
		{"a board", nil, "hypervisor.qemu.machine_type = 'pc-q35-7.2'", "machine type", ok, "pc-q35-7.2"},
		{"no such board", nil, "hypervisor.qemu.machine_type = 'pc-q35-7.20'", "machine type", missing, "/usr/bin/qemu-system-x86_64 has no pc-q35-7.20"},
		{"a filter", nil, "hypervisor.qemu.seccompsandbox = 'off'", "seccomp", ok, "off"},
		{"no such filter", nil, "hypervisor.qemu.seccompsandbox = 'on,spawn=bogus'", "seccomp", missing, "invalid argument for spawn"},
		{"a device that is not used", lacksDevice("pvpanic-pci"), "", "devices", ok, "all"},
		{"no device for panics", lacksDevice("pvpanic-pci"), "hypervisor.qemu.guest_memory_dump_path = '/var/crash'", "devices", missing,
			"/usr/bin/qemu-system-x86_64 has no pvpanic-pci\nno pod of this configuration starts, or none that gets a disk or more memory if that is what is missing\ninstall a QEMU that has it, or change hypervisor.qemu.guest_memory_dump_path"},
		{"no memory modules", lacksDevice("pc-dimm"), "", "devices", missing, "has no pc-dimm"},
		{"memory modules that are not used", lacksDevice("pc-dimm"), "hypervisor.qemu.enable_virtio_mem = true", "devices", ok, "all"},
		{"no virtio-mem", lacksDevice("virtio-mem-pci"), "hypervisor.qemu.enable_virtio_mem = true", "devices", missing, "change hypervisor.qemu.enable_virtio_mem"},
		{"machines that do not grow", lacksDevice("pc-dimm"), "runtime.static_sandbox_resource_mgmt = true", "devices", ok, "all"},
		{"no bridge", lacksDevice("pci-bridge"), "", "devices", missing, "install a QEMU that has it"},
		{"no accelerator", func(_ *testing.T, f *fakeHost) {
			f.output = answering(f.output, "-accel", "Accelerators supported in QEMU binary:\ntcg\n")
		}, "", "QEMU -accel", missing, "has no kvm"},
		{"no firmware", nil, "hypervisor.qemu.firmware = '/usr/share/ovmf/OVMF.fd'", "firmware", missing, "/usr/share/ovmf/OVMF.fd"},
		{"no mount", nil, "runtime.sandbox_bind_mounts = ['/data:rw']", "sandbox mount", missing, "/data: file does not exist"},
		{"a mount", func(_ *testing.T, f *fakeHost) { f.files["data/x"] = &fstest.MapFile{} },
			"runtime.sandbox_bind_mounts = ['/data:ro']", "sandbox mount", ok, "/data"},
		{"a wrapper of QEMU", func(_ *testing.T, f *fakeHost) { f.jailable = isScript }, "", "QEMU", missing, "is a script"},
		{"QEMU elsewhere", nil, "hypervisor.qemu.path = '/opt/qemu'", "QEMU", missing, "/opt/qemu"},
		{"Rust's virtiofsd", func(_ *testing.T, f *fakeHost) { f.programs["/usr/lib/qemu/virtiofsd"] = "virtiofsd 1.13.0\n" }, withDaemon, "virtiofsd", ok, "version 1.13.0"},
		{"no virtiofsd", nil, "", "virtiofsd", ok, "the shim serves the share itself"},
		{"arguments without virtiofsd", nil, "hypervisor.qemu.virtio_fs_extra_args = ['-o', 'x']", "virtiofsd", missing, `configuration.toml:1) has ["-o" "x"]`},
		{"arguments without a share", nil, "[hypervisor.qemu]\nshared_fs = 'none'\nvirtio_fs_extra_args = ['-d']", "virtiofsd", ok, "none"},
		{"virtiofsd fails", func(_ *testing.T, f *fakeHost) {
			f.output = failing(f.output, "/usr/lib/qemu/virtiofsd")
		}, withDaemon, "virtiofsd", missing, "--version: exit status 1: setgroups() failed"},
		{"no kernel release", func(_ *testing.T, f *fakeHost) {
			f.files["usr/share/kata-containers/vmlinux"] = &fstest.MapFile{Data: []byte("bzImage")}
		}, "", "guest kernel", ok, "1 MiB"},
		{"little memory", nil, "hypervisor.qemu.default_memory = 5000", "memory", warning, "OOM"},
		{"huge pages", func(_ *testing.T, f *fakeHost) { f.files["proc/meminfo"] = hugePages(2048, 1024, 1) },
			"[hypervisor.qemu]\nenable_hugepages = true\ndefault_memory = 2046", "memory", ok, "1023 huge pages of 2048 KiB free, default_memory is 1023"},
		{"few huge pages", func(_ *testing.T, f *fakeHost) { f.files["proc/meminfo"] = hugePages(1048576, 1, 0) },
			"[hypervisor.qemu]\nenable_hugepages = true", "memory", missing, "sysctl vm.nr_hugepages=101,"},
		{"no huge pages", nil, "[hypervisor.qemu]\nenable_hugepages = true", "memory", missing, "enable_hugepages = false"},
		{"no directory for memory", nil, "[hypervisor.qemu]\nfile_mem_backend = '/mnt/m'", "memory", missing, "mkdir /mnt/m"},
		{"a directory for memory", func(_ *testing.T, f *fakeHost) { f.files["mnt/m/x"] = &fstest.MapFile{} },
			"[hypervisor.qemu]\nfile_mem_backend = '/mnt/m'", "memory", ok, "4096 MiB"},
		{"no entropy source", nil, "[hypervisor.qemu]\nentropy_source = '/dev/none'", "entropy source", missing, "/dev/none"},
		{"no meminfo", func(_ *testing.T, f *fakeHost) { delete(f.files, "proc/meminfo") }, "", "memory", warning, "it is unknown whether"},
		{"shim beside", func(_ *testing.T, f *fakeHost) {
			f.lookPath = func(string) (string, error) { return "", unix.ENOENT }
			f.files["usr/local/bin/"+shimName] = &fstest.MapFile{}
		}, "", "shim", warning, "/usr/local/bin in its PATH"},
		{"no network", nil, "[runtime]\ninternetworking_model = 'none'", "traffic control", ok, "not needed"},
		{"no vhost-net", func(_ *testing.T, f *fakeHost) {
			f.openDevice = func(path string) error {
				if path == "/dev/vhost-net" {
					return unix.ENOENT
				}
				return nil
			}
		}, "", "vhost-net", warning, "modprobe vhost_net"},
		{"vhost-net is not wanted", nil, "[hypervisor.qemu]\ndisable_vhost_net = true", "vhost-net", ok, "not used"},
		{"macvtap", func(t *testing.T, f *fakeHost) {
			f.files["proc/config.gz"] = &fstest.MapFile{Data: packed(t, strings.ReplaceAll(kernelOptions, "CONFIG_MACVTAP=m", ""))}
		}, "[runtime]\ninternetworking_model = 'macvtap'", "traffic control", missing, "no macvtap"},
		{"modules of another kernel", func(_ *testing.T, f *fakeHost) {
			delete(f.files, "lib/modules/6.18.1/modules.dep")
			delete(f.files, "lib/modules/6.18.1/modules.builtin")
			f.files["lib/modules/6.19.0/modules.dep"] = &fstest.MapFile{Data: []byte(modulesDep)}
		}, "", "traffic control", missing, "sch_ingress, act_mirred: the modules of the running kernel 6.18.1 are not installed"},
		{"modules elsewhere", func(_ *testing.T, f *fakeHost) {
			delete(f.files, "lib/modules/6.18.1/modules.dep")
			delete(f.files, "lib/modules/6.18.1/modules.builtin")
		}, "", "traffic control", warning, "modprobe sch_ingress && modprobe act_mirred"},
		{"a module that is not installed", func(_ *testing.T, f *fakeHost) {
			f.files["lib/modules/6.18.1/modules.dep"] = &fstest.MapFile{Data: []byte("kernel/net/sched/act_mirred.ko:\nkernel/sch_ingress.ko.old: \n")}
		}, "", "traffic control", missing, "no sch_ingress: "},
		{"a module that is loaded", func(_ *testing.T, f *fakeHost) {
			delete(f.files, "lib/modules/6.18.1/modules.dep")
			f.files["sys/module/sch_ingress/refcnt"] = &fstest.MapFile{}
			f.files["sys/module/act_mirred/refcnt"] = &fstest.MapFile{}
		}, "", "traffic control", ok, "sch_ingress, cls_u32, act_mirred (/proc/config.gz)"},
		{"a module that became part of the kernel", func(_ *testing.T, f *fakeHost) {
			f.files["lib/modules/6.18.1/modules.dep"] = &fstest.MapFile{}
			f.files["lib/modules/6.18.1/modules.builtin"] = &fstest.MapFile{Data: []byte("kernel/act_mirred.ko\nkernel/sch_ingress.ko\n")}
		}, "", "traffic control", ok, "sch_ingress"},
		{"modules unknown", func(_ *testing.T, f *fakeHost) {
			f.open = refusing(f.open, "/lib/modules/6.18.1/modules.dep")
		}, "", "traffic control", warning, "modprobe sch_ingress && modprobe act_mirred"},
		{"configuration in /boot", func(_ *testing.T, f *fakeHost) {
			delete(f.files, "proc/config.gz")
			f.files["boot/config-6.18.1"] = &fstest.MapFile{Data: []byte(kernelOptions)}
		}, "", "traffic control", ok, "/boot/config-6.18.1"},
		{"configuration unknown", func(_ *testing.T, f *fakeHost) { delete(f.files, "proc/config.gz") }, "", "traffic control", warning, "modprobe sch_ingress && modprobe cls_u32"},
		{"configuration damaged", func(_ *testing.T, f *fakeHost) {
			f.files["proc/config.gz"] = &fstest.MapFile{Data: []byte("x")}
		}, "", "traffic control", warning, "read /proc/config.gz"},
		{"no user namespaces", func(_ *testing.T, f *fakeHost) { delete(f.files, "proc/sys/user/max_user_namespaces") }, "", "user namespaces", warning, "CONFIG_USER_NS"},
		{"a kernel without mount numbers", func(_ *testing.T, f *fakeHost) {
			f.mountIDs = func() error { return errors.New("statx does not return a file's mount") }
		}, "", "host kernel", missing, "5.8"},
		{"no idmapped mounts", func(_ *testing.T, f *fakeHost) { f.idmap = func() error { return unix.ENOSYS } }, "", "user namespaces", warning, "5.12"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeHost(t)
			if test.change != nil {
				test.change(t, f)
			}
			results := f.check(t.Context(), configure(t, test.config))
			i := slices.IndexFunc(results, func(r result) bool { return r.Name == test.check })
			if i < 0 {
				t.Fatalf("no check %q in %+v", test.check, results)
			}
			r := results[i]
			if said := r.Found + "\n" + r.Means + "\n" + r.Do; r.Status != test.status || !strings.Contains(said, test.words) {
				t.Errorf("%s: %+v, want %s and %q", r.Name, r, test.status, test.words)
			}
			for _, other := range results {
				if other.Name != test.check && other.Status != ok {
					t.Errorf("%s is %s as well: %+v", other.Name, other.Status, other)
				}
			}
		})
	}
}

// QEMU says nothing of turns where its vCPUs run in parallel, or are to do so, or
// where there is one.
func TestCheckTurns(t *testing.T) {
	const old, later = "QEMU emulator version 7.2.22", "QEMU emulator version 8.1.0"
	for _, tt := range []struct {
		version, config string
		accel           func() (hypervisor.Accel, string)
		turns           bool
	}{
		{old, "", translated, true},
		{old, "tcg_thread = 'auto'", translated, true},
		{old, "tcg_thread = 'multi'", translated, false},
		{old, "default_maxvcpus = 1", translated, false},
		{old, "", func() (hypervisor.Accel, string) { return hypervisor.AccelKVM, "" }, false},
		{later, "", translated, false},
	} {
		f := newFakeHost(t)
		f.accel, f.programs["/usr/bin/qemu-system-x86_64"] = tt.accel, tt.version
		results := f.check(t.Context(), configure(t, "[hypervisor.qemu]\n"+tt.config))
		i := slices.IndexFunc(results, func(r result) bool { return r.Name == "QEMU" })
		if i < 0 {
			t.Fatalf("no check of QEMU in %+v", results)
		}
		r := results[i]
		if turns := strings.Contains(r.Means, "take turns"); turns != tt.turns || r.Status != ok || turns != strings.Contains(r.Do, "8.1") {
			t.Errorf("%s, %q: %+v", tt.version, tt.config, r)
		}
	}
}

// withDaemon configures an external daemon to serve the share.
const withDaemon = "hypervisor.qemu.virtio_fs_daemon = '/usr/lib/qemu/virtiofsd'"

// failing makes one program fail as virtiofsd does when it is not root.
func failing(output func(context.Context, string, ...string) (string, error), path string) func(context.Context, string, ...string) (string, error) {
	return func(ctx context.Context, name string, args ...string) (string, error) {
		if name != path {
			return output(ctx, name, args...)
		}
		out, err := exec.CommandContext(ctx, "sh", "-c", "echo 'setgroups() failed' >&2; exit 1").Output()
		return string(out), err
	}
}

func TestProgramThatOnlyRootCanRun(t *testing.T) {
	f := newFakeHost(t)
	f.output = failing(f.output, "/usr/lib/qemu/virtiofsd")
	f.uid = 1000
	r := newReport(f.check(t.Context(), configure(t, withDaemon)))
	i := slices.IndexFunc(r.Checks, func(r result) bool { return r.Name == "virtiofsd" })
	if !r.CanRun || r.Checks[i].Status != warning {
		t.Errorf("%+v", r.Checks[i])
	}
}

// The real host answers every question, whatever the answers are.
func TestThisHost(t *testing.T) {
	h := thisHost()
	results := h.check(t.Context(), configure(t, ""))
	for _, r := range results {
		if r.Found == "" || r.Status != ok && (r.Means == "" || r.Do == "") {
			t.Errorf("nothing is said: %+v", r)
		}
	}
	if h.release == "" || h.executable == "" || h.cpus < 1 {
		t.Errorf("host %q, %q, %d CPUs", h.release, h.executable, h.cpus)
	}
}

// hugePages is a /proc/meminfo of a host with 100 huge pages.
func hugePages(kib, free, reserved int) *fstest.MapFile {
	return &fstest.MapFile{Data: fmt.Appendf(nil, "HugePages_Total:     100\nHugePages_Free:     %d\nHugePages_Rsvd:        %d\nHugepagesize:       %d kB\n",
		free, reserved, kib)}
}
