package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/internal/unixsocket"
	"github.com/katabox/katabox/virtcontainers/persist"
)

// Order says which shim a spare becomes.
type Order struct {
	// Args are its whole command line, Env its environment and Dir its working
	// directory.
	Args, Env []string
	Dir       string
}

// The spare's answer to an order, and the start's answer to that. Each message
// is one packet.
const (
	taken = "taken"
	begin = "begin"
)

const (
	// maxOrder bounds an order, in bytes: a packet must fit into the socket's
	// buffer.
	maxOrder = 128 << 10
	// beginWait is how long a spare waits for each message of its claimer.
	beginWait = 5 * time.Second
)

// Claim is a claimed spare, in the process that claimed it.
type Claim struct {
	// Process is the spare.
	Process persist.Process

	conn *net.UnixConn
	pool Pool
}

// Claim takes a spare of that name; nil if none can be had, with an error if some
// could not be reached. The caller passes it an order, and ends it otherwise.
func (p Pool) Claim(ctx context.Context, name string) (*Claim, error) {
	ids, err := p.ReadyIDs(name)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, id := range ids {
		mine, err := p.claim(name, id)
		if !mine {
			errs = append(errs, err)
			continue
		}
		c, err := p.connect(ctx, id)
		if err == nil {
			return c, nil
		}
		errs = append(errs, err, p.Tidy()) // it has died
	}
	return nil, errors.Join(errs...)
}

// connect connects to a claimed spare.
func (p Pool) connect(ctx context.Context, id string) (*Claim, error) {
	at, err := os.OpenFile(p.dir(id, socketFile), unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("connect to spare: %w", err)
	}
	defer at.Close()
	conn, err := unixsocket.Connect(ctx, at, unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, fmt.Errorf("connect to spare: %w", err)
	}
	if deadline, set := ctx.Deadline(); set {
		err = conn.SetDeadline(deadline)
	}
	c := &Claim{conn: conn, pool: p}
	if err == nil {
		// Its answer will show that it was still this process.
		c.Process, err = peer(conn)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to spare: %w", err), conn.Close())
	}
	return c, nil
}

// peer returns the process at the other end, which must be root's.
func peer(conn *net.UnixConn) (persist.Process, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return persist.Process{}, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return persist.Process{}, err
	}
	if cred.Uid != uint32(os.Geteuid()) || cred.Pid == 0 {
		return persist.Process{}, fmt.Errorf("process %d of user %d is not a spare", cred.Pid, cred.Uid)
	}
	return persist.Identify(int(cred.Pid))
}

// Give passes the order and an open file, and waits until the spare has become
// that shim in all but its service.
func (c *Claim) Give(order Order, file *os.File) error {
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	if len(text) > maxOrder {
		return fmt.Errorf("the order has %d bytes, want at most %d", len(text), maxOrder)
	}
	if _, _, err := c.conn.WriteMsgUnix(text, unix.UnixRights(int(file.Fd())), nil); err != nil {
		return fmt.Errorf("pass order to spare: %w", err)
	}
	return expect(c.conn, taken)
}

// Begin lets the spare serve. The claim is over.
func (c *Claim) Begin() error {
	_, err := c.conn.Write([]byte(begin))
	return errors.Join(err, c.conn.Close())
}

// Abandon gives the spare up: it ends by itself unless it hangs.
func (c *Claim) Abandon() { _ = c.conn.Close() }

// End ends the spare, which has not been let serve, and waits until it is gone.
func (c *Claim) End() error {
	c.Abandon()
	return errors.Join(c.Process.Kill(endWait), c.pool.Tidy())
}

func expect(conn *net.UnixConn, want string) error {
	buffer := make([]byte, len(want)+1)
	n, err := conn.Read(buffer)
	if err != nil {
		return err
	}
	if got := string(buffer[:n]); got != want {
		return fmt.Errorf("got message %q, want %q", got, want)
	}
	return nil
}

// Request is a claimer's order, in the spare. The spare owns File.
type Request struct {
	Order
	File *os.File

	conn *net.UnixConn
}

// Receive reads an order from a connection, which it owns. It waits some seconds
// at most.
func Receive(conn *net.UnixConn) (*Request, error) {
	r := &Request{conn: conn}
	err := conn.SetDeadline(time.Now().Add(beginWait))
	if err == nil {
		_, err = peer(conn)
	}
	if err == nil {
		err = r.receive()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("receive order: %w", err), r.Close())
	}
	return r, nil
}

func (r *Request) receive() error {
	text, rights := make([]byte, maxOrder), make([]byte, unix.CmsgSpace(4))
	n, rn, flags, _, err := r.conn.ReadMsgUnix(text, rights)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:rn])
	if err != nil {
		return err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return err
		}
		for _, fd := range fds { // one: there is room for no more
			unix.CloseOnExec(fd)
			r.File = os.NewFile(uintptr(fd), "passed on")
		}
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || r.File == nil {
		return errors.New("not an order with one file")
	}
	return json.Unmarshal(text[:n], &r.Order)
}

// Take tells the claimer that the order is followed, and waits until it says
// that the spare may serve.
func (r *Request) Take() error {
	if _, err := r.conn.Write([]byte(taken)); err != nil {
		return err
	}
	return expect(r.conn, begin)
}

// Keep ends the exchange and returns File, which is the caller's now.
func (r *Request) Keep() *os.File {
	f := r.File
	r.File = nil
	_ = r.conn.Close()
	return f
}

// Close ends the exchange, and closes File.
func (r *Request) Close() error {
	var err error
	if r.File != nil {
		err = r.File.Close()
	}
	return errors.Join(err, r.conn.Close())
}
