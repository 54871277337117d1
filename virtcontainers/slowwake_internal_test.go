package virtcontainers

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/katabox/katabox/hypervisor/memfile"
)

// slowMemory is memory of which each block takes that long to be put back.
type slowMemory struct {
	memfile.File
	block time.Duration
}

func (m slowMemory) PutBlock(block []byte, at int64) error {
	time.Sleep(m.block)
	return m.File.PutBlock(block, at)
}

// sleptSlowly returns what a sandbox is woken from whose memory is slow.
func sleptSlowly(t *testing.T, block time.Duration) (z *slept, content []byte) {
	t.Helper()
	file, err := memfile.Blank("slow", 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	z = &slept{memory: []memfile.Memory{slowMemory{memfile.File{File: file}, block}}}
	content = bytes.Repeat([]byte("katabox!"), 2<<20/8)
	if _, err := file.WriteAt(content, 0); err != nil {
		t.Fatal(err)
	}
	if z.image, err = os.Create(filepath.Join(t.TempDir(), "image")); err != nil {
		t.Fatal(err)
	}
	stored, err := memfile.StoreImage(t.Context(), z.image, z.key, z.memory, 2<<20)
	if err != nil {
		t.Fatal(err)
	}
	z.MemoryBytes, z.ImageBytes = stored.Memory, stored.Image
	if _, err := z.image.Seek(0, 0); err != nil {
		t.Fatal(err)
	}
	return z, content
}

// A host that is slow to give the memory back loses no sandbox, one that does not is
// not waited for.
func TestSlowWake(t *testing.T) {
	for name, test := range map[string]struct {
		block time.Duration
		want  string
	}{
		"each block is slow": {wakePatience - time.Second, ""},
		"a block hangs":      {wakePatience + time.Second, "nothing of it was restored for 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z, content := sleptSlowly(t, test.block)
				began := time.Now()
				err := z.restore(context.Background())
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("after %v: %v, want %q", time.Since(began), err, test.want)
				}
				if err == nil {
					got := make([]byte, len(content))
					if _, err := z.memory[0].(slowMemory).ReadAt(got, 0); err != nil || !bytes.Equal(got, content) {
						t.Errorf("the memory differs, %v", err)
					}
				}
				if err := z.close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
