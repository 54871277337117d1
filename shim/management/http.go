package management

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
)

// maxRequest bounds what precedes a request's body, and maxBody the body of most
// requests, in bytes.
const (
	maxRequest = 8 << 10
	maxBody    = 8 << 10
)

// errTooLong means that a request's body is longer than its path takes.
var errTooLong = errors.New("its body is too long")

// request is an HTTP request (RFC 9112), as far as it is parsed here.
type request struct {
	method, path string
	query        url.Values
	body         []byte
	// upgrade is the protocol that the client wants to go on with, or empty.
	upgrade string
}

// readRequest reads a request: its first line, its headers, of which only the
// body's length and an upgrade matter, and its body. most returns how many bytes
// the body of a request with that first line may have.
func readRequest(r io.Reader, most func(*request) int) (*request, error) {
	limited := &io.LimitedReader{R: r, N: maxRequest}
	lines := bufio.NewReader(limited)
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
	req := &request{method: method, path: u.Path, query: u.Query()}
	length, err := req.readHeaders(lines, most(req))
	if err != nil {
		return nil, err
	}
	req.body, limited.N = make([]byte, length), int64(length)
	if _, err := io.ReadFull(lines, req.body); err != nil {
		return nil, fmt.Errorf("read request: its body is shorter than its %d bytes: %w", length, err)
	}
	return req, nil
}

// readHeaders returns the length of the body that the headers announce, at most
// most.
func (r *request) readHeaders(lines *bufio.Reader, most int) (length int, err error) {
	for {
		line, err := readLine(lines)
		if line == "" || err != nil {
			return length, err
		}
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.ToLower(name) {
		case "upgrade":
			r.upgrade = value
		case "transfer-encoding":
			return 0, fmt.Errorf("read request: its body is %q, want one with a Content-Length", value)
		case "content-length":
			if length, err = strconv.Atoi(value); err != nil || length < 0 {
				return 0, fmt.Errorf("read request: a body of %q bytes: want %d at most", value, most)
			}
			if length > most {
				return 0, fmt.Errorf("read request: %w: %d bytes, want %d at most", errTooLong, length, most)
			}
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
	200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 409: "Conflict", 413: "Content Too Large",
	500: "Internal Server Error", 501: "Not Implemented", 503: "Service Unavailable",
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
