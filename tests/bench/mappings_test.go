package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each mapping's PSS is counted once, for the kind that its line names.
func TestAddMappings(t *testing.T) {
	const smaps = `55d1c0000000-55d1c0400000 r--p 00000000 fe:00 10166313   /usr/bin/qemu-system-x86_64
Size:               4096 kB
Pss:                   5 kB
Pss_Dirty:             4 kB
55d1ee000000-55d1eef00000 rw-p 00000000 00:00 0   [heap]
Pss:                  70 kB
7f66a3fff000-7f66b3fff000 rw-p 00000000 00:01 378582   /memfd:katabox-template-0 (deleted)
Pss:                 900 kB
7f66b4000000-7f66b7fff000 rwxp 00000000 00:00 0
Pss:                3000 kB
VmFlags: rd wr ex mr mw me ac hg
7f66c0000000-7f66c0021000 rw-p 00000000 00:00 0
Pss:                   7 kB
`
	got := map[string]int64{memGuest: 100}
	addMappings(got, smaps)
	want := map[string]int64{memFiles: 5, memHeap: 77, memGuest: 1000, memTranslated: 3000}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
