package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A pod's additions to the command lines of QEMU and of the share's daemon are
// parsed, and only what is listed here is passed on: any other option could
// name a file of the host or disable a protection. Values in the file are the
// operator's and are passed unchanged.

// machineOptions are those properties of a q35 board (qemu-system-x86_64
// -machine q35,help) that are about the guest's hardware alone. The others name
// files (firmware, dtb, dumpdtb), objects, or, as dump-guest-core, what becomes of
// the guest's memory on the host.
var machineOptions = []string{
	"acpi", "default-bus-bypass-iommu", "graphics", "hpet", "i8042", "kernel-irqchip", "kernel_irqchip", "max-ram-below-4g",
	"mem-merge", "pic", "pit", "sata", "smbus", "smm", "suppress-vmdesc", "usb", "vmport",
}

// optionWord is a value without commas, slashes or blanks.
var optionWord = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func checkMachineOptions(v any) error {
	list, _ := v.(string)
	return eachItem(list, func(item string) error {
		name, value, _ := strings.Cut(item, "=")
		if !slices.Contains(machineOptions, name) || !optionWord.MatchString(value) {
			return fmt.Errorf("%q is not among what pods may set: want a comma separated list of name=value, each name one of %s",
				item, strings.Join(machineOptions, ", "))
		}
		return nil
	})
}

// cpuFeature is a property of a CPU model. All of them are about the guest's CPU.
var cpuFeature = regexp.MustCompile(`^([+-]?[A-Za-z0-9][A-Za-z0-9._-]*|[A-Za-z0-9][A-Za-z0-9._-]*=[A-Za-z0-9._-]*)$`)

func checkCPUFeatures(v any) error {
	list, _ := v.(string)
	return eachItem(list, func(item string) error {
		if !cpuFeature.MatchString(item) {
			return fmt.Errorf("%q is not a CPU feature: want a comma separated list of name=value, +name or -name", item)
		}
		return nil
	})
}

// eachItem checks each item of a list that commaList has parsed.
func eachItem(list string, check func(string) error) error {
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if err := check(item); err != nil {
			return err
		}
	}
	return nil
}

// daemonOptions are the options of both virtiofsds (QEMU's, and the Rust one,
// whose names have dashes) that control how files are cached and presented to
// the guest, with patterns for their values; nil takes no value. Options that
// name a path or a descriptor, change the daemon's own confinement, lock files
// of the host or fill the host's log are excluded.
var daemonOptions = map[string]*regexp.Regexp{
	"allow-direct-io": nil, "no-allow-direct-io": nil,
	"announce-submounts": nil, "no-announce-submounts": nil,
	"cache":    regexp.MustCompile(`^(auto|always|none|never|metadata)$`),
	"no-flock": nil, "no-posix-lock": nil,
	"killpriv-v2": nil, "no-killpriv-v2": nil,
	"posix-acl": nil, "no-posix-acl": nil,
	"readdirplus": nil, "no-readdirplus": nil,
	"thread-pool-size": regexp.MustCompile(`^[0-9]{1,4}$`),
	"timeout":          regexp.MustCompile(`^[0-9]{1,6}(\.[0-9]{1,6})?$`),
	"writeback":        nil, "no-writeback": nil,
	"xattr": nil, "no-xattr": nil,
}

// checkDaemonArguments takes --NAME, --NAME=VALUE, and -o with its list behind it.
func checkDaemonArguments(v any) error {
	items, _ := v.([]any)
	for i := 0; i < len(items); i++ {
		argument, _ := items[i].(string)
		long, isLong := strings.CutPrefix(argument, "--")
		switch {
		case isLong && isDaemonOption(long), argument == "": // the key itself refuses an empty one
		case argument == "-o" && i+1 < len(items):
			i++
			if err := checkDaemonList(items[i]); err != nil {
				return err
			}
		default:
			return notDaemonOption(argument)
		}
	}
	return nil
}

func checkDaemonList(v any) error {
	list, _ := v.(string)
	for option := range strings.SplitSeq(list, ",") {
		if !isDaemonOption(option) {
			return notDaemonOption(option)
		}
	}
	return nil
}

func isDaemonOption(option string) bool {
	name, value, hasValue := strings.Cut(option, "=")
	values, known := daemonOptions[strings.ReplaceAll(name, "_", "-")]
	return known && hasValue == (values != nil) && (values == nil || values.MatchString(value))
}

func notDaemonOption(option string) error {
	return fmt.Errorf("%q is not among what pods may set: want --NAME, --NAME=VALUE, or -o and NAME or NAME=VALUE, as docs/configuration.md lists them", option)
}
