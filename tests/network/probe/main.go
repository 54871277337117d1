package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("want serve, check, file, hold, ports, state or watch")
	}
	switch args[0] {
	case "serve":
		return serve(args[1:], out)
	case "check":
		return check(args[1:], out)
	case "file":
		return useFile(args[1:], out)
	case "hold":
		return holdFiles(args[1:], out)
	case "ports":
		return usePorts(args[1:], out)
	case "state":
		return printState(out)
	case "watch":
		return watch(args[1:], out)
	default:
		return fmt.Errorf("unknown command %q: want serve, check, file, hold, ports, state or watch", args[0])
	}
}
