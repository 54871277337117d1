package logs

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Serve sends the lines to each reader that connects to l: first those in the
// ring, then new ones. There is one reader at a time; a new one replaces the
// last, which may be a dead connection of a host that has reconnected. It
// returns when ctx is done or l fails, after its goroutines have ended.
func (r *Ring) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var readers sync.WaitGroup
	defer readers.Wait()
	drop := func() {}
	defer func() { drop() }()
	var next uint64 // used by one reader at a time
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept log reader: %w", err)
		}
		r.take()
		drop()
		readers.Wait()
		readerCtx, cancelReader := context.WithCancel(ctx)
		drop = cancelReader
		readers.Go(func() {
			defer cancelReader()
			next = r.stream(readerCtx, conn, next)
		})
	}
}

// stream writes lines to conn from sequence number next on until ctx is done
// or the reader is gone; it returns the next sequence number.
func (r *Ring) stream(ctx context.Context, conn net.Conn, next uint64) uint64 {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	watched := make(chan struct{})
	go func() { // The reader sends nothing: the end of file is its end.
		defer close(watched)
		defer cancel()
		_, _ = io.Copy(io.Discard, conn)
	}()
	defer func() {
		cancel()
		if stop() {
			_ = conn.Close()
		}
		<-watched
	}()
	for {
		lines, lost, following, more := r.after(next)
		if lost > 0 {
			lines = append([][]byte{lostLine(lost)}, lines...)
		}
		if err := writeAll(conn, lines); err != nil {
			return next
		}
		next = following
		select {
		case <-ctx.Done():
			return next
		case <-more:
		}
	}
}

func lostLine(n uint64) []byte {
	return fmt.Appendf(nil, `{"level":"warning","msg":"%d log lines were dropped: they were not read in time"}`+"\n", n)
}

func writeAll(w io.Writer, lines [][]byte) error {
	for _, line := range lines {
		if _, err := w.Write(line); err != nil {
			return fmt.Errorf("write log: %w", err)
		}
	}
	return nil
}
