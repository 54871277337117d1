package stream

import (
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"github.com/containerd/log"
	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/agent/api"
	"github.com/katabox/katabox/agent/relay"
)

// headroom is the room before a block's data, for the header of an inline frame.
const headroom = api.InlineHeader

func newBlock(size int) []byte { return make([]byte, headroom+size) }

// write sends a block's data, in a frame if the connection has frames, and returns how
// much of the data was sent. A frame that was cut off is the connection's last one.
func (r *run) write(block []byte) (int, error) {
	if r.bulk == nil {
		return r.conn.Write(block[headroom:])
	}
	block[0] = api.FrameInline
	binary.BigEndian.PutUint32(block[1:], uint32(len(block)-headroom))
	n, err := r.conn.Write(block)
	return max(n-headroom, 0), err
}

// bulk is the file of the share by which large blocks of an output go to the host.
type bulk struct {
	path  string
	slots relay.Slots
	// failed: what follows goes over the connection.
	failed bool
}

func newBulk(path string) *bulk {
	if path == "" {
		return nil
	}
	return &bulk{path: path, slots: relay.Slots{
		Count: api.OutputSlots, Size: api.OutputSlotSize, Header: api.SlotHeader, Data: api.OutputSlotData, Kind: api.FrameSlot,
	}}
}

// relay is relay.Relay.Run through the file. The file is open only meanwhile, and then
// empty unless the copying was stopped: many outputs share its room.
func (b *bulk) relay(rl *relay.Relay, from, to syscall.Conn) (read uint64, rest []byte, err error) {
	// The guest's kernel is not to copy and cache the data. os.OpenFile would add the
	// file to Go's poller, which asks the share's server.
	fd, err := unix.Open(b.path, unix.O_WRONLY|unix.O_DIRECT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		log.L.WithError(err).Debugf("output comes without the file %s", b.path)
		b.failed = true
		return 0, nil, nil
	}
	file := os.NewFile(uintptr(fd), b.path)
	defer file.Close()
	read, rest, ok, err := rl.RunSlots(from, to, file, &b.slots)
	if b.failed = !ok; b.slots.Used() == 0 {
		_ = file.Truncate(0)
	}
	if err != nil {
		return read, rest, fmt.Errorf("relay output: %w", err)
	}
	return read, rest, nil
}
