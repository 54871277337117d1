package pty

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestTerminal(t *testing.T) {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	slave, err := OpenSlave(master)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	for _, test := range []struct {
		rows, columns uint
		want          unix.Winsize
	}{
		{33, 120, unix.Winsize{Row: 33, Col: 120}},
		{0, 80, unix.Winsize{Col: 80}},
		{24, 1 << 20, unix.Winsize{Row: 24, Col: 1<<16 - 1}},
	} {
		if err := Resize(master, test.rows, test.columns); err != nil {
			t.Errorf("%d x %d: %v", test.rows, test.columns, err)
		}
		if got, err := unix.IoctlGetWinsize(int(slave.Fd()), unix.TIOCGWINSZ); err != nil || *got != test.want {
			t.Errorf("%d x %d: the other end has %v, %v", test.rows, test.columns, got, err)
		}
	}
	if _, err := master.WriteString("word\n"); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 5)
	if n, err := slave.Read(line); err != nil || string(line[:n]) != "word\n" {
		t.Errorf("read %q, %v", line[:n], err)
	}
}

func TestNoTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if f, err := OpenSlave(null); err == nil {
		t.Errorf("the slave of %s is %s", null.Name(), f.Name())
	}
	if err := Resize(null, 1, 1); err == nil {
		t.Errorf("%s has a size", null.Name())
	}
}
