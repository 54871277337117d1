package guest_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/virtcontainers/guest"
)

// A ttrpc message is a header of ten bytes (length, stream, type, flags) and a
// payload; see PROTOCOL.md of github.com/containerd/ttrpc.
const (
	rpcHeader   = 10
	rpcResponse = 2
	rpcData     = 3
)

// FuzzAnswers lets a guest answer Hello correctly, and then send any messages
// while the host waits for four answers and the events: each wait ends when the
// connection does, and nothing panics.
//
// Four bytes of the input and a payload make a message: stream, type, flags and
// the payload's length. After a type of 255 the rest is sent unchanged.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte{3, rpcData, 0, 2, 10, 0, 5, rpcResponse, 0, 0})
	f.Add([]byte{3, rpcData, 1, 0, 3, rpcData, 0, 1, 9})
	f.Add([]byte{5, rpcResponse, 0, 4, 10, 2, 8, 5, 5, rpcResponse, 0, 0, 5, rpcResponse, 0, 0})
	f.Add([]byte{0, 255, 0, 10, 255, 255, 255, 255, 0, 0, 0, 3, rpcData, 0})
	f.Fuzz(func(t *testing.T, input []byte) {
		synctest.Test(t, func(t *testing.T) { playAnswers(t, input) })
	})
}

func playAnswers(t *testing.T, input []byte) {
	host, peer := net.Pipe()
	go func() {
		defer func() { _ = peer.Close() }()
		requests := 0
		for range 1 + len(waits) {
			if !readRequest(peer) {
				t.Errorf("the host sent %d requests", requests)
				return
			}
			if requests++; requests == 1 {
				_, _ = peer.Write(greeting())
			}
		}
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		_, _ = peer.Write(messages(input))
	}()
	c, err := guest.Connect(t.Context(), func(context.Context, uint32) (guest.Conn, error) { return pipeConn{host}, nil })
	if err != nil {
		t.Fatal(err)
	}
	var waiting sync.WaitGroup
	for _, wait := range waits {
		waiting.Go(func() { wait(t.Context(), c) })
	}
	began := time.Now()
	waiting.Wait()
	if took := time.Since(began); took > time.Hour {
		t.Errorf("the host waited %v", took)
	}
	_ = c.Close()
}

// waits are the calls that a host makes to the agent concurrently.
var waits = []func(context.Context, *guest.Client){
	func(ctx context.Context, c *guest.Client) { _ = c.Events(ctx, func(*api.Event) {}) },
	func(ctx context.Context, c *guest.Client) { _, _ = c.Task().Pids(ctx, &task.PidsRequest{}) },
	func(ctx context.Context, c *guest.Client) { _, _ = c.Task().Stats(ctx, &task.StatsRequest{}) },
	func(ctx context.Context, c *guest.Client) { _, _ = c.SetNetwork(ctx, &api.SetNetworkRequest{}) },
	func(ctx context.Context, c *guest.Client) { _, _ = c.SetResources(ctx, 1, 1) },
	func(ctx context.Context, c *guest.Client) { _ = c.LimitContainers(ctx, 1, 1) },
}

// readRequest reads one message from the host.
func readRequest(r io.Reader) bool {
	var header [rpcHeader]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return false
	}
	_, err := io.CopyN(io.Discard, r, int64(binary.BigEndian.Uint32(header[:])))
	return err == nil
}

// greeting is the agent's first answer.
func greeting() []byte {
	hello, _ := proto.Marshal(&api.HelloResponse{ProtocolVersion: api.ProtocolVersion})
	answer, _ := proto.Marshal(&ttrpc.Response{Payload: hello})
	return message(nil, 1, rpcResponse, 0, answer)
}

// messages are those that the input describes.
func messages(input []byte) []byte {
	var out []byte
	for len(input) >= 4 {
		stream, kind, flags, length := input[0], input[1], input[2], int(input[3])
		input = input[4:]
		length = min(length, len(input))
		payload := input[:length]
		input = input[length:]
		if kind == 255 {
			out = append(out, payload...)
			continue
		}
		out = message(out, stream, kind, flags, payload)
	}
	return out
}

func message(to []byte, stream, kind, flags byte, payload []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(payload)))
	to = append(to, 0, 0, 0, stream, kind, flags)
	return append(to, payload...)
}

// pipeConn is a pipe whose CloseWrite closes both directions.
type pipeConn struct{ net.Conn }

func (pipeConn) CloseWrite() error { return nil }
