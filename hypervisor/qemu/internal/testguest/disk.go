package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
)

// The offsets at which the tests and the guest write their texts on a disk: two
// blocks of 4 KiB.
const (
	hostWords  = 0
	guestWords = 4096
	wordsLen   = 64
)

// reportDisk prints a disk: "add", its address, its serial number, its size in
// blocks of 512 bytes, its logical block size, whether it is read-only, and the
// host's text on it; then it tries to write its own. For a removed disk it
// prints "remove" and its address.
func reportDisk(action, path string) {
	where := place(path)
	switch action {
	case "remove":
		say("remove disk %s", where)
	case "add":
		words, err := useDisk("/dev/" + filepath.Base(path))
		say("add disk %s serial=%s size=%s block=%s ro=%s words=%q wrote=%v", where, serial(path),
			attribute(path, "size"), attribute(path, "queue/logical_block_size"), attribute(path, "ro"), words, err == nil)
	}
}

func attribute(path, name string) string {
	value, err := os.ReadFile(filepath.Join("/sys", path, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(value))
}

// serial reads the serial number: virtio-blk's attribute, or a SCSI disk's VPD
// page (SPC-4, 7.8.15: Unit Serial Number, after four bytes).
func serial(path string) string {
	if page := attribute(path, "device/vpd_pg80"); len(page) > 4 {
		return page[4:]
	}
	return attribute(path, "serial")
}

// useDisk reads the host's text, and writes it back after "guest: ".
func useDisk(node string) (string, error) {
	block := make([]byte, 4096)
	r, err := os.Open(node)
	if err != nil {
		return err.Error(), err
	}
	defer r.Close()
	if _, err := r.ReadAt(block, hostWords); err != nil {
		return err.Error(), err
	}
	words := string(bytes.TrimRight(block[:wordsLen], "\x00"))
	w, err := os.OpenFile(node, os.O_WRONLY|os.O_SYNC, 0)
	if err != nil {
		return words, err
	}
	defer w.Close()
	clear(block)
	copy(block, "guest: "+words)
	_, err = w.WriteAt(block, guestWords)
	return words, err
}
