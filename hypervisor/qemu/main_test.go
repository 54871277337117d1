package qemu

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/katabox/katabox/hypervisor"
)

// parentEnv makes this test binary launch a machine with the kernel that its
// value names.
const parentEnv = "KATABOX_TEST_PARENT"

func TestMain(m *testing.M) {
	if kernel, ok := os.LookupEnv(parentEnv); ok {
		os.Exit(beParent(kernel))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if guestDir != "" {
			_ = os.RemoveAll(guestDir)
		}
		os.Exit(code)
	}))
}

// beParent launches a machine, prints its pid and waits to be killed.
func beParent(kernel string) int {
	accel, _ := DetectAccel(Host{})
	vm, err := New(Options{}).Launch(context.Background(), hypervisor.Spec{
		ID: "orphan", Path: os.Args[1], Accel: accel, VCPUs: 1, MemoryMiB: 64, Kernel: kernel,
	})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(vm.PID())
	<-vm.Done()
	return 0
}
