package stream

import (
	"errors"
	"os"
)

// pass gives the process what the reader has read. The reader writes it itself
// while it may: a queue would cost two wake-ups for each block.
func (in *input) pass(data []byte) {
	if !in.took(data) {
		return
	}
	n, err := in.file.Write(data)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil // Park interrupted it.
	}
	in.passed(data[n:], err)
}

// took notes what was read, and reports whether the reader is to write it. If not,
// it is in the queue: the input is parking, or there is no file yet.
func (in *input) took(data []byte) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.received += uint64(len(data))
	if len(data) == 0 {
		return false
	}
	if in.direct = in.state == bound && in.file != nil && len(in.queue)+in.hand == 0; in.direct {
		in.hand = len(data)
		return true
	}
	in.queue = append(in.queue, data...)
	in.changed.Broadcast()
	return false
}

// interrupt ends the reader's own write. mu is held.
func (in *input) interrupt() {
	if in.direct {
		in.interrupted = true
		in.file.wake()
	}
}

// passed notes that the reader's own write is done, and queues what an interrupted
// one has left.
func (in *input) passed(rest []byte, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.direct, in.hand = false, 0
	if in.interrupted {
		in.interrupted = false
		in.file.letWait()
	}
	switch {
	case err != nil:
		in.refused()
	case len(rest) > 0:
		in.queue = append(in.queue, rest...)
		in.changed.Broadcast()
	}
}

// write gives the process what is in the queue, until the input is over. Closing
// the pipe is then the process's end of file.
func (in *input) write() {
	for block := in.take(nil); len(block) > 0; block = in.take(block) {
		_, err := in.file.Write(block)
		in.wrote(err)
	}
	if !in.terminal {
		_ = in.file.Close()
	}
}

// take waits for the queue's content and removes it; an empty result is the end. The
// queue reuses the space of the block before.
func (in *input) take(before []byte) []byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	for !in.gone && (in.file == nil || len(in.queue) == 0 && !in.over) {
		in.changed.Wait()
	}
	if in.gone {
		return nil
	}
	if cap(before) > inputBlock {
		before = nil // Only a parked input is longer.
	}
	block := in.queue
	in.queue, in.hand = before[:0], len(block)
	return block
}

// wrote notes that the writer's block is done.
func (in *input) wrote(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.hand = 0
	if err != nil {
		in.refused()
	}
	in.changed.Broadcast()
}

// refused ends the input because the process no longer reads. The host's connection
// is closed. mu is held.
func (in *input) refused() {
	in.over, in.queue = true, nil
	_ = in.run.conn.Close()
	in.changed.Broadcast()
}
