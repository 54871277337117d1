package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/katabox/katabox/tests/kvmhost/wire"
)

// server answers the host's frames. One command runs at a time.
type server struct {
	mu   sync.Mutex // serializes the frames that are sent
	port io.Writer

	input io.WriteCloser // of the running command; nil without one
}

// serve runs commands until the host asks for a power-off.
func serve() error {
	port, err := openPort(wire.Port)
	if err != nil {
		return err
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return fmt.Errorf("read the kernel's release: %w", err)
	}
	s := &server{port: port}
	hello := wire.Hello{Kernel: unix.ByteSliceToString(name.Release[:]), Problems: problemsFromEnv()}
	if err := s.sendJSON(wire.KindHello, hello); err != nil {
		return err
	}
	go s.beat()
	frames := bufio.NewReader(port)
	for {
		kind, data, err := wire.Read(frames)
		if err != nil {
			return err
		}
		if kind == wire.KindPowerOff {
			return nil
		}
		if err := s.handle(kind, data); err != nil {
			return err
		}
	}
}

// beat sends heartbeats to the host until the port fails. It ends with this
// process.
func (s *server) beat() {
	for s.send(wire.KindBeat, nil) == nil {
		time.Sleep(wire.BeatPeriod)
	}
}

func (s *server) handle(kind wire.Kind, data []byte) error {
	switch kind {
	case wire.KindRun:
		var c wire.Command
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("read command: %w", err)
		}
		s.start(c)
	case wire.KindInput:
		if s.input != nil {
			_, _ = s.input.Write(data) // a command may end without reading all
		}
	case wire.KindInputEnd:
		if s.input != nil {
			_ = s.input.Close()
		}
	default:
		return fmt.Errorf("frame %q is none of the host's", kind)
	}
	return nil
}

func (s *server) send(kind wire.Kind, data []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wire.Write(s.port, kind, data)
}

func (s *server) sendJSON(kind wire.Kind, v any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return wire.WriteJSON(s.port, kind, v)
}

// openPort finds a virtio-serial port by its name.
func openPort(name string) (*os.File, error) {
	files, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err == nil && strings.TrimSpace(string(data)) == name {
			return os.OpenFile("/dev/"+filepath.Base(filepath.Dir(file)), os.O_RDWR, 0)
		}
	}
	return nil, errors.New("open port " + name + ": there is none of that name")
}
