package modprobe

import (
	"fmt"
	"io"
	"os"
	"path"

	"github.com/katabox/katabox/agent/modules"
)

// program is the name under which the kernel starts its helper
// (CONFIG_MODPROBE_PATH, /proc/sys/kernel/modprobe).
const program = "modprobe"

func init() {
	if len(os.Args) > 0 && path.Base(os.Args[0]) == program {
		os.Exit(answer())
	}
}

// parameters are those of modules that the kernel requests. Loaded without them,
// these modules make links (dummy0, ifb0, ifb1) in the guest's network
// namespace, which is the containers'. The link for which the kernel requested the
// module could then not have such a name (EEXIST).
var parameters = map[string]string{"dummy": "numdummies=0", "ifb": "numifbs=0"}

// answer loads what the kernel requested and returns the exit status.
func answer() int {
	list, err := modules.ReadList(modules.ListFile)
	if err == nil {
		var known bool
		known, err = probe(os.Args[1:], list, modules.LoadFile)
		if known && err == nil {
			return 0
		}
	}
	if err != nil {
		tell(err)
	}
	return 1
}

// probe loads the modules that args request. known reports whether there are
// any; one of them must be loaded.
func probe(args []string, list modules.List, load modules.Loader) (known bool, err error) {
	name, err := request(args)
	if err != nil {
		return false, err
	}
	loaded := false
	for _, place := range list.Lookup(name) {
		known = true
		if one := list.Load(place, parameters[list[place].Name], load); one != nil {
			err = fmt.Errorf("answer the kernel's request for %q: %w", name, one)
			continue
		}
		loaded = true
	}
	if loaded {
		err = nil
	}
	return known, err
}

// request reads the command line and returns the name: the kernel's (call_modprobe
// in kernel/module/kmod.c), or that of the guest's own iptables-legacy
// (xtables_insmod in iptables' libxtables/xtables.c).
func request(args []string) (string, error) {
	switch {
	case len(args) == 3 && args[0] == "-q" && args[1] == "--" && args[2] != "":
		return args[2], nil
	case len(args) == 1 || len(args) == 2 && args[1] == "-q":
		if args[0] != "" && args[0][0] != '-' {
			return args[0], nil
		}
	}
	return "", fmt.Errorf("read arguments: got %.200q, want -q -- NAME, or NAME -q", args)
}

// tell writes to the kernel's log, the process's only output.
func tell(err error) {
	kmsg, openErr := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0)
	if openErr != nil {
		return
	}
	defer kmsg.Close()
	logLine(kmsg, err)
}

// logLine writes one record of the priority "warning" (Documentation/ABI/
// testing/dev-kmsg).
func logLine(kmsg io.Writer, err error) {
	_, _ = fmt.Fprintf(kmsg, "<4>kata-agent: %s: %v\n", program, err)
}
