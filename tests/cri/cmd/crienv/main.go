// Command crienv starts the private containerd of tests/cri and waits, for
// working with crictl and critest by hand: it prints the variables to set in
// another shell. ^C ends it and cleans up.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/katabox/katabox/tests/cri/env"
	"github.com/katabox/katabox/tests/harness"
)

func main() {
	debug := flag.Bool("debug", false, "log at debug level")
	runtime := flag.String("runtime", harness.Kata.Name, "kata, which has both handlers, or runc")
	extra := flag.String("kata-config", "", "`text` to append to the runtime's configuration")
	flag.Parse()
	if err := run(*runtime, *extra, *debug); err != nil {
		fmt.Fprintln(os.Stderr, "crienv:", err)
		os.Exit(1)
	}
}

func run(name, extra string, debug bool) error {
	layout, err := harness.FindLayout()
	if err != nil {
		return err
	}
	o := env.Options{Layout: layout, Runtime: harness.Kata, Kata: harness.KataConfig{Extra: extra}, Debug: debug}
	if name == harness.Runc.Name {
		o.Runtime = harness.Runc
	}
	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	e, err := env.Start(interrupted, o)
	if err != nil {
		return err
	}
	fmt.Printf(`# containerd: log %s
export PATH=%s:$PATH CRI_CONFIG_FILE=%s CONTAINER_RUNTIME_ENDPOINT=%s
# crictl runp -r %s pod.json
# critest -runtime-endpoint $CONTAINER_RUNTIME_ENDPOINT -runtime-handler %s -ginkgo.focus NAME
# ^C ends it and removes everything
`, e.Daemon.LogPath, env.ToolsDir(layout), e.CrictlConfig(), e.Endpoint(), o.Runtime.Name, o.Runtime.Name)
	<-interrupted.Done()
	fmt.Println("crienv: cleaning up")
	return e.Stop(context.Background())
}
