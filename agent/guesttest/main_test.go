package guesttest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/containerd/log"

	_ "github.com/katabox/katabox/agent/container/inside" // Takes over in containers.
	"github.com/katabox/katabox/agent/guest"
	_ "github.com/katabox/katabox/agent/slack" // Before Go starts, as in the agent.
)

// verdict precedes the tests' exit code on the console.
const verdict = "guesttest-exit"

// inGuest reports whether this program is a guest's init.
func inGuest() bool { return os.Getpid() == 1 }

func init() { runtime.LockOSThread() } // As the agent's main does.

func TestMain(m *testing.M) {
	if os.Args[0] == prober {
		os.Exit(probe())
	}
	if !inGuest() {
		os.Exit(m.Run())
	}
	code := 1
	if err := bootGuest(); err != nil {
		fmt.Println("boot:", err)
	} else {
		code = m.Run()
	}
	fmt.Println(verdict, code)
	fmt.Println(guest.PowerOff())
}

// theMachine is the only pod of this guest.
var theMachine *machine

func bootGuest() error {
	flag.Parse()
	_ = log.SetLevel("warn")
	if err := guest.EnterRoot(); err != nil {
		return err
	}
	ctx := context.Background()
	modules, err := guest.Boot(ctx, nil)
	if err != nil {
		return err
	}
	theMachine, err = startMachine(ctx, modules)
	return err
}
