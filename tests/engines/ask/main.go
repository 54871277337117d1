package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"time"
)

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

func main() {
	patience := flag.Duration("for", 10*time.Second, "how long to go on asking")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *patience)
	body, err := askUntil(ctx, flag.Arg(0))
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ask:", err)
		os.Exit(1)
	}
	fmt.Print(body)
}

// askUntil asks until there is an answer or ctx ends; the error is the last
// one's.
func askUntil(ctx context.Context, from string) (string, error) {
	for {
		body, err := ask(ctx, from)
		if err == nil {
			return body, nil
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// ask gets a URL once.
func ask(ctx context.Context, from string) (string, error) {
	u, err := url.Parse(from)
	if err != nil || u.Scheme != "http" || u.Hostname() == "" {
		return "", fmt.Errorf("%q: want http://HOST[:PORT][/PATH]", from)
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
	if err != nil {
		return "", fmt.Errorf("connect: %w", err)
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return "", fmt.Errorf("set deadline: %w", err)
		}
	}
	return get(conn, u)
}

// get speaks HTTP/1.0, whose answer ends with the connection (RFC 1945).
func get(conn net.Conn, u *url.URL) (string, error) {
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", u.RequestURI(), u.Host); err != nil {
		return "", fmt.Errorf("send request: %w", err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if err != nil {
		return "", fmt.Errorf("read answer: %w", err)
	}
	head, body, ok := strings.Cut(string(answer), "\r\n\r\n")
	if status := strings.Fields(head); !ok || len(status) < 2 || status[1] != "200" {
		return "", errors.New("answer: " + strings.SplitN(head, "\r\n", 2)[0])
	}
	return body, nil
}
