package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// words is what two processes say to each other in a file's shared mapping.
type words struct {
	question, answer atomic.Uint32
}

// answerWait bounds the wait for an answer.
const answerWait = 20 * time.Second

func mapWords(f *os.File) (*words, []byte, error) {
	m, err := unix.Mmap(int(f.Fd()), 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, os.NewSyscallError("mmap", err)
	}
	return (*words)(unsafe.Pointer(unsafe.SliceData(m))), m, nil
}

// answerInMapping locks the file in both ways, prints "ready", and answers each question
// until it is killed.
func answerInMapping(f *os.File, out io.Writer) error {
	if err := f.Truncate(int64(os.Getpagesize())); err != nil {
		return err
	}
	if err := errors.Join(lockAll(f), lockRange(f)); err != nil {
		return err
	}
	w, _, err := mapWords(f)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	for ; ; time.Sleep(time.Millisecond) {
		w.answer.Store(w.question.Load())
	}
}

// askInMapping asks, and waits for the answer.
func askInMapping(f *os.File, _ io.Writer) error {
	w, m, err := mapWords(f)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Munmap(m) }()
	question := w.question.Add(1)
	for end := time.Now().Add(answerWait); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if w.answer.Load() == question {
			return nil
		}
	}
	return errors.New("no answer")
}
