package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"

	"golang.org/x/net/dns/dnsmessage"
)

// The names that the DNS server knows. The first has one address, and the
// second has more than fit into a datagram.
const (
	smallName = "db.example."
	largeName = "large.example."
	largeSize = 100
)

// serveDNS answers queries by UDP and TCP at one address.
func serveDNS(address string, ended chan<- error) error {
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	go func() { ended <- serveDNSDatagrams(conn) }()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			go serveDNSStream(conn)
		}
	}()
	return nil
}

func serveDNSDatagrams(conn net.PacketConn) error {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return err
		}
		if answer, err := answerDNS(buf[:n], false); err == nil {
			_, _ = conn.WriteTo(answer, from) // the client repeats its query
		}
	}
}

// serveDNSStream answers the queries of one connection, each after its length
// (RFC 1035, section 4.2.2).
func serveDNSStream(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		var size [2]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		answer, err := answerDNS(query, true)
		if err != nil {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// answerDNS answers a query with one question; by UDP a large answer is only
// marked as truncated.
func answerDNS(query []byte, stream bool) ([]byte, error) {
	var q dnsmessage.Message
	if err := q.Unpack(query); err != nil || len(q.Questions) != 1 {
		return nil, errors.Join(err, errors.New("not a query"))
	}
	question := q.Questions[0]
	a := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: q.ID, Response: true, Authoritative: true, RecursionAvailable: true},
		Questions: q.Questions,
	}
	count := map[string]int{smallName: 1, largeName: largeSize}[question.Name.String()]
	switch {
	case count == 0:
		a.RCode = dnsmessage.RCodeNameError
	case question.Type != dnsmessage.TypeA:
	case count > 1 && !stream:
		a.Truncated = true
	default:
		for i := range count {
			a.Answers = append(a.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: 1},
				Body:   &dnsmessage.AResource{A: [4]byte{10, 11, 12, byte(i + 1)}},
			})
		}
	}
	return a.Pack()
}

// checkResolve looks a name up by the servers of /etc/resolv.conf.
func checkResolve(name string, options url.Values) error {
	want, err := number(options, "count")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTime)
	defer cancel()
	resolver := net.Resolver{PreferGo: true}
	addrs, err := resolver.LookupNetIP(ctx, "ip4", name)
	if err != nil {
		return err
	}
	if len(addrs) != want || addrs[0].Unmap().As4()[0] != 10 {
		return fmt.Errorf("%d addresses, the first %s; want %d in 10.11.12.0/24", len(addrs), addrs[0], want)
	}
	return nil
}
