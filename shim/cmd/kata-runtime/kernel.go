package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"

	"github.com/katabox/katabox/virtcontainers/config"
)

// checkHostKernel asks for what the shares of all pods need. It does not compare
// releases: distributions add to theirs.
func (h host) checkHostKernel() result {
	r := result{Name: "host kernel", Status: ok, Found: h.release}
	if err := h.mountIDs(); err != nil {
		r.Status, r.Found, r.Means = missing, h.release+": "+err.Error(), "pods cannot have their files, and do not start"
		r.Do = "use Linux 5.8 or later"
	}
	return r
}

func (h host) checkTUN() result {
	r := result{Name: "TUN", Status: ok, Found: "/dev/net/tun"}
	if err := h.openDevice("/dev/net/tun"); err != nil {
		r.Status, r.Found, r.Means = missing, err.Error(), "guests cannot be connected to their pods' networks"
		r.Do = "modprobe tun"
	}
	return r
}

func (h host) checkVhostNet(cfg *config.Config) result {
	r := result{Name: "vhost-net", Status: ok, Found: "/dev/vhost-net"}
	if cfg != nil && cfg.Hypervisor.DisableVhostNet {
		r.Found = "not used: disable_vhost_net is true"
		return r
	}
	if err := h.openDevice("/dev/vhost-net"); err != nil {
		r.Status, r.Found, r.Means = warning, err.Error(), "QEMU moves the guests' packets, more slowly than the host's kernel would"
		r.Do = "modprobe vhost_net"
	}
	return r
}

// trafficOptions are the options of the kernel's configuration that connecting
// links to guests needs, by network model, each with the module that has it.
var trafficOptions = map[config.NetworkModel][][2]string{
	config.NetworkTCFilter: {
		{"CONFIG_NET_SCH_INGRESS", "sch_ingress"}, {"CONFIG_NET_CLS_U32", "cls_u32"}, {"CONFIG_NET_ACT_MIRRED", "act_mirred"},
	},
	config.NetworkMacVTap: {
		{"CONFIG_MACVTAP", "macvtap"},
		{"CONFIG_NET_SCH_INGRESS", "sch_ingress"}, {"CONFIG_NET_CLS_U32", "cls_u32"}, {"CONFIG_NET_ACT_MIRRED", "act_mirred"},
	},
}

func (h host) checkTraffic(cfg *config.Config) result {
	model := config.NetworkTCFilter
	if cfg != nil {
		model = cfg.Runtime.NetworkModel
	}
	r := result{Name: "traffic control", Status: ok}
	wanted := trafficOptions[model]
	if len(wanted) == 0 {
		r.Found = fmt.Sprintf("not needed: internetworking_model is %q", model)
		return r
	}
	options, source, err := h.kernelConfig()
	if err != nil {
		r.Status, r.Found = warning, err.Error()
		r.Means = "it is unknown whether the kernel has ingress, u32 and mirred, which connect links to guests"
		r.Do = "modprobe " + strings.Join(modulesOf(wanted), " && modprobe ")
		return r
	}
	var lacking, modules [][2]string
	for _, option := range wanted {
		switch options[option[0]] {
		case "y":
		case "m":
			modules = append(modules, option)
		default:
			lacking = append(lacking, option)
		}
	}
	if len(lacking) > 0 {
		r.Status, r.Found = missing, "no "+strings.Join(modulesOf(lacking), ", ")+" ("+source+")"
		r.Means = fmt.Sprintf("links cannot be connected to guests with internetworking_model = %q", model)
		r.Do = `use a kernel with them, or internetworking_model = "none"`
		return r
	}
	r.Found = strings.Join(modulesOf(wanted), ", ") + " (" + source + ")"
	return h.checkModules(r, modulesOf(modules))
}

// checkModules checks that the kernel could load modules, or changes r. A kernel's
// update may remove the modules of the one that runs.
func (h host) checkModules(r result, names []string) result {
	absent, err := h.noModules(names)
	switch {
	case err != nil:
		r.Status, r.Found = warning, oneLine(err.Error())
		r.Means = "it is unknown whether the kernel's modules are installed, which connect links to guests"
		r.Do = "modprobe " + strings.Join(names, " && modprobe ")
	case len(absent) > 0:
		r.Status, r.Found = missing, "no "+strings.Join(absent, ", ")+": the modules of the running kernel "+h.release+" are not installed"
		r.Means = "links cannot be connected to guests"
		r.Do = "reboot, or install the package with this kernel's modules"
	}
	return r
}

func modulesOf(options [][2]string) []string {
	names := make([]string, len(options))
	for i, option := range options {
		names[i] = option[1]
	}
	return names
}

// kernelConfig reads how the kernel was configured, from where distributions
// keep it.
func (h host) kernelConfig() (options map[string]string, source string, err error) {
	const packed = "/proc/config.gz"
	for _, source := range []string{packed, "/boot/config-" + h.release, "/lib/modules/" + h.release + "/config"} {
		text, err := h.readAll(source, maxKernelConfig)
		if err != nil {
			continue
		}
		if source == packed {
			text, err = unpack(text)
		}
		if err != nil {
			return nil, "", fmt.Errorf("read %s: %w", source, err)
		}
		return parseKernelConfig(text), source, nil
	}
	return nil, "", fmt.Errorf("neither %s nor /boot/config-%s exists", packed, h.release)
}

// maxKernelConfig bounds how much of a kernel's configuration is read, in bytes:
// a distribution's has about 300 KiB.
const maxKernelConfig = 16 << 20

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxKernelConfig))
}

func parseKernelConfig(text []byte) map[string]string {
	options := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && strings.HasPrefix(name, "CONFIG_") {
			options[name] = value
		}
	}
	return options
}

func (h host) checkSkLookup() result {
	r := result{Name: "sk_lookup", Status: ok, Found: "BPF programs of this type can be loaded"}
	if err := h.skLookup(); err != nil {
		r.Status, r.Found = warning, err.Error()
		r.Means = "port-forward (crictl, kubectl) does not reach guests; everything else works"
		r.Do = "use Linux 5.9 or later with CONFIG_BPF_SYSCALL, and run this as root"
	}
	return r
}

// checkIDMap checks what a pod with a user namespace needs from the host, which
// maps the owners of its volumes.
func (h host) checkIDMap() result {
	r := result{Name: "user namespaces", Status: ok, Found: "user namespaces and idmapped mounts"}
	const means = "pods with their own user namespace (hostUsers: false) cannot run; all others can"
	limit, err := h.readAll("/proc/sys/user/max_user_namespaces", 32)
	switch {
	case err != nil:
		r.Status, r.Found, r.Means, r.Do = warning, err.Error(), means, "use a kernel with CONFIG_USER_NS"
	case strings.TrimSpace(string(limit)) == "0":
		r.Status, r.Found, r.Means = warning, "user.max_user_namespaces is 0", means
		r.Do = "sysctl user.max_user_namespaces=10000"
	default:
		if err := h.idmap(); err != nil {
			r.Status, r.Found, r.Means = warning, "no idmapped mounts: "+err.Error(), means
			r.Do = "use Linux 5.12 or later"
		}
	}
	return r
}
