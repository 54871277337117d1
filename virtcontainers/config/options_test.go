package config

import (
	"strings"
	"testing"
)

// anything enables all annotations and leaves the lists of paths alone.
const anything = "[hypervisor.qemu]\nenable_annotations = ['.*']\n"

// An annotation that becomes part of a command line can set what is listed and
// nothing else: no file, no other option.
func TestOptionsOfPods(t *testing.T) {
	const (
		machine  = "machine_accelerators"
		cpu      = "cpu_features"
		daemon   = "virtio_fs_extra_args"
		machines = "want a comma separated list of name=value, each name one of acpi, "
	)
	for _, test := range []struct {
		name, value string
		// want is a part of the error; empty means that the value is taken.
		want string
	}{
		{machine, "kernel_irqchip=split", ""},
		{machine, "kernel-irqchip=on, hpet=off,", ""},
		{machine, "", ""},
		{machine, "firmware=/etc/shadow", `"firmware=/etc/shadow" is not among what pods may set: ` + machines},
		{machine, "hpet=off,dumpdtb=/etc/passwd", `"dumpdtb=/etc/passwd" is not among`},
		{machine, "dump-guest-core=on", `"dump-guest-core=on" is not among`},
		{machine, "memory-backend=other", `"memory-backend=other" is not among`},
		{machine, "hpet=off=on", `"hpet=off=on" is not among`},
		{machine, "hpet", `"hpet" is not among`},
		{machine, "-smm=on", `"-smm=on" is not among`},
		{cpu, "pmu=off,+vmx,-svm,hv-vendor-id=Katabox", ""},
		{cpu, "pmu=off,-", `"-" is not a CPU feature: want a comma separated list of name=value, +name or -name`},
		{cpu, "model-id=a b", `"model-id=a b" is not a CPU feature`},
		{cpu, "model-id=/etc/shadow", `"model-id=/etc/shadow" is not a CPU feature`},
		{daemon, `["--thread-pool-size=4","--announce-submounts","-o","cache=none,timeout=1.5,no_xattr"]`, ""},
		{daemon, `["-o","announce_submounts"]`, ""},
		{daemon, `["--shared-dir=/"]`, `"--shared-dir=/" is not among what pods may set: want --NAME`},
		{daemon, `["-o","source=/"]`, `"source=/" is not among`},
		{daemon, `["-o","writeback,source=/"]`, `"source=/" is not among`},
		{daemon, `["-osource=/"]`, `"-osource=/" is not among`},
		{daemon, `["--sandbox=none"]`, `"--sandbox=none" is not among`},
		{daemon, `["--modcaps=+sys_admin"]`, `"--modcaps=+sys_admin" is not among`},
		{daemon, `["-o","modcaps=+sys_admin"]`, `"modcaps=+sys_admin" is not among`},
		{daemon, `["--seccomp","none"]`, `"--seccomp" is not among`},
		{daemon, `["--socket-path=/run/x"]`, `"--socket-path=/run/x" is not among`},
		{daemon, `["--thread-pool-size=many"]`, `"--thread-pool-size=many" is not among`},
		{daemon, `["writeback"]`, `"writeback" is not among`},
		{daemon, `["--writeback","-o"]`, `"-o" is not among`},
		{daemon, `["-o",""]`, `"" is not among`},
		{daemon, `["--writeback",""]`, "want a JSON list of arguments, none empty"},
		{daemon, `["--"]`, `"--" is not among`},
	} {
		_, _, err := annotate(t, anything, map[string]string{hv + test.name: test.value})
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s = %s: %v", test.name, test.value, err)
		case test.want != "" && err == nil:
			t.Errorf("%s = %s is taken", test.name, test.value)
		case test.want != "" && (!strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "annotation "+hv+test.name+" = ")):
			t.Errorf("%s = %s\n got  %s\n want %s", test.name, test.value, err, test.want)
		}
	}
}

// Values in the file are the operator's and are not restricted.
func TestOptionsOfFiles(t *testing.T) {
	got, err := buildDoc("[hypervisor.qemu]\nmachine_accelerators = 'x-oem-id=KATA'\nvirtio_fs_extra_args = ['-o', 'log_level=debug']")
	if err != nil || got.Hypervisor.MachineAccelerators != "x-oem-id=KATA" || len(got.Hypervisor.VirtioFS.ExtraArgs) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

// Every annotation that names a file or a directory of the host must have a
// list of patterns, including those added later.
func TestHostPathsHaveLists(t *testing.T) {
	inGuest := map[string]bool{"hypervisor.qemu.guest_hook_path": true}
	for _, k := range keys {
		if !strings.HasPrefix(k.want, "an absolute path") || inGuest[k.name] {
			continue
		}
		for _, a := range k.annotations {
			if a.allowed == nil {
				t.Errorf("annotation %s names any path of the host", a.name)
			}
		}
	}
}
