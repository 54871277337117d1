package management

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// maxRequest bounds a request, in bytes.
const maxRequest = 8 << 10

// request is an HTTP request (RFC 9112), as far as it is parsed here.
type request struct {
	method, path string
	query        url.Values
}

// readRequest reads a request's first line and its headers, which are ignored.
func readRequest(r io.Reader) (*request, error) {
	lines := bufio.NewReader(io.LimitReader(r, maxRequest))
	first, err := readLine(lines)
	if err != nil {
		return nil, err
	}
	method, rest, _ := strings.Cut(first, " ")
	target, version, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(version, "HTTP/1.") || !strings.HasPrefix(target, "/") {
		return nil, errors.New("read request: it is not HTTP/1")
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	for {
		line, err := readLine(lines)
		if err != nil {
			return nil, err
		}
		if line == "" {
			return &request{method: method, path: u.Path, query: u.Query()}, nil
		}
	}
}

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read request: it ends before its headers do, or is longer than %d bytes", maxRequest)
	}
	if err != nil {
		return "", fmt.Errorf("read request: %w", err)
	}
	return strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"), nil
}

// response is a complete answer.
type response struct {
	status      int
	contentType string
	body        []byte
}

// reasons are the phrases of the statuses that are used.
var reasons = map[int]string{
	200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 500: "Internal Server Error", 503: "Service Unavailable",
}

// head returns what precedes the body: the connection ends with the answer.
func (r response) head() []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
		r.status, reasons[r.status], r.contentType, len(r.body))
}

const plainText = "text/plain; charset=utf-8"

// fail returns an answer that states the failure in one line.
func fail(status int, why string) response {
	return response{status: status, contentType: plainText, body: []byte(why + "\n")}
}
