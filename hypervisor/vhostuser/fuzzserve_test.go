package vhostuser

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/hypervisor/vhostuser/vhosttest"
	"github.com/katabox/katabox/internal/fdtest"
)

// FuzzServe is a front end that sends anything, with descriptors of the right
// and the wrong kinds: Serve ends, and keeps no descriptor.
//
// A message is five bytes of the input and a payload: the request, the
// payload's length, which descriptor comes with it, and how many times.
func FuzzServe(f *testing.F) {
	f.Add([]byte{vhosttest.SetVringKick, 8, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{vhosttest.SetVringCall, 8, 1, 1, 8, 1, 0, 0, 0, 0, 0, 0, 0, vhosttest.GetConfig, 0, 0, 0, 0})
	f.Add(append([]byte{vhosttest.SetMemTable, 40, 2, 1, 0}, make([]byte, 40)...))
	f.Add([]byte{vhosttest.SetDeviceStateFD, 8, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, vhosttest.CheckDeviceState, 0, 0, 0, 0})
	f.Add([]byte{vhosttest.SetDeviceStateFD, 8, 5, 0, 8, 1, 0, 0, 0, 0, 0, 0, 0, vhosttest.CheckDeviceState, 0, 0, 0, 0})
	memory := vhosttest.NewMemory(f, unix.F_SEAL_SHRINK)
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		f.Fatal(err)
	}
	// Pipes whose other ends are closed: transfers of state end by themselves.
	kinds := []int{-1, event, memory.FD(), 0, lonely(f, 0), lonely(f, 1)}
	// The front end's addresses are anything, so the owner is not this process.
	owner := startOwner(f)
	f.Fuzz(func(t *testing.T, input []byte) {
		send(t, newReverser(nil), kinds, input)
		send(t, newReverser(owner), kinds, input)
		send(t, newKeeper(""), kinds, input)
	})
}

// lonely returns one end of a pipe, whose other end is closed.
func lonely(f *testing.F, end int) int {
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		f.Fatal(err)
	}
	_ = unix.Close(pipe[1-end])
	return pipe[end]
}

// send serves a device, and sends it the input's messages.
func send(t *testing.T, d Device, kinds []int, input []byte) {
	before := fdtest.Open(t)
	front, ended := serve(t, d)
	// Few enough that the replies, which are not read, fit into the socket.
	for n := 0; len(input) >= 5 && n < 100; n++ {
		msg := input[:5]
		input = input[5:]
		size := min(int(msg[1]), len(input))
		var fds []int
		if fd := kinds[int(msg[2])%len(kinds)]; fd >= 0 {
			for range int(msg[3])%10 + 1 {
				fds = append(fds, fd)
			}
		}
		if front.Send(uint32(msg[0]), uint32(msg[4])&8, input[:size], fds...) != nil {
			break // the back end has hung up
		}
		input = input[size:]
	}
	front.Close()
	_ = await(t, ended)
	if diff := cmp.Diff(before, fdtest.Open(t)); diff != "" {
		t.Errorf("descriptors: %s", diff)
	}
}
