package vhostuser

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// replyTimeout bounds how long a front end may leave a reply unread. QEMU waits
// for each answer, so this ends only dead connections.
const replyTimeout = 10 * time.Second

// readMessage waits for the next request. io.EOF means that the front end
// closed between two messages.
func readMessage(c *net.UnixConn) (*message, error) {
	m := &message{}
	if err := m.read(c); err != nil {
		m.closeFDs()
		return nil, err
	}
	return m, nil
}

func (m *message) read(c *net.UnixConn) error {
	var hdr [headerLen]byte
	for n := 0; n < headerLen; {
		k, err := m.readPart(c, hdr[n:])
		if err != nil {
			if n > 0 && errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		n += k
	}
	var err error
	if m.header, err = decodeHeader(hdr[:]); err != nil {
		return err
	}
	m.payload = make([]byte, m.size)
	if _, err := io.ReadFull(c, m.payload); err != nil {
		return fmt.Errorf("read payload of %v: %w", m.req, err)
	}
	return nil
}

// readPart reads some of a header, together with the descriptors that come
// with it. The kernel drops those that come with a payload's bytes: front ends
// attach them to the first byte of a message.
func (m *message) readPart(c *net.UnixConn, p []byte) (int, error) {
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	n, oobn, flags, _, err := c.ReadMsgUnix(p, oob)
	if fdErr := m.takeControl(oob[:oobn]); err == nil {
		err = fdErr
	}
	if err != nil {
		return 0, err
	}
	switch {
	case flags&unix.MSG_CTRUNC != 0 && len(m.fds) < maxFDs: // there was room for more (net/core/scm.c)
		return 0, fmt.Errorf("receive the front end's descriptors: %w", unix.EMFILE)
	case flags&unix.MSG_CTRUNC != 0 || len(m.fds) > maxFDs:
		return 0, fmt.Errorf("more than %d descriptors: %w", maxFDs, errMalformed)
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// takeControl collects the descriptors of one control buffer.
func (m *message) takeControl(oob []byte) error {
	if len(oob) == 0 {
		return nil
	}
	cmsgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return fmt.Errorf("parse control message: %w", err)
	}
	for i := range cmsgs {
		fds, err := unix.ParseUnixRights(&cmsgs[i])
		if err != nil {
			return fmt.Errorf("parse descriptors: %w", err)
		}
		m.fds = append(m.fds, fds...)
	}
	return nil
}

// takeFD returns the message's only descriptor; the caller then owns it.
func (m *message) takeFD() int {
	fd := m.fds[0]
	m.fds = m.fds[1:]
	return fd
}

func (m *message) closeFDs() {
	for _, fd := range m.fds {
		_ = unix.Close(fd)
	}
	m.fds = nil
}

func writeReply(c *net.UnixConn, req request, payload []byte) error {
	if err := c.SetWriteDeadline(time.Now().Add(replyTimeout)); err != nil {
		return fmt.Errorf("set deadline of reply: %w", err)
	}
	if _, err := c.Write(encodeReply(req, payload)); err != nil {
		return fmt.Errorf("reply to %v: %w", req, err)
	}
	return nil
}
