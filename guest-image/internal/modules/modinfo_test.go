package modules

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/katabox/katabox/guest-image/internal/elftest"
)

func TestReadInfo(t *testing.T) {
	for _, tc := range []struct {
		name    string
		entries []string
		want    Info
	}{
		{"plain", []string{"name=fuse", "depends=", "vermagic=6.1.0 SMP"}, Info{Name: "fuse"}},
		{"dependencies", []string{"name=virtio_pci", "depends=virtio_ring,virtio-pci-modern"},
			Info{Name: "virtio_pci", Depends: []string{"virtio_ring", "virtio_pci_modern"}}},
		{"soft dependencies", []string{"name=x", "softdep=pre: crc32c aes post: y", "softdep=post: z pre: w"},
			Info{Name: "x", SoftPre: []string{"crc32c", "aes", "w"}}},
		{"aliases", []string{"alias=fs-fuse", "alias=devname:fuse", "name=fuse", "alias=a=b"},
			Info{Name: "fuse", Aliases: []string{"fs-fuse", "devname:fuse", "a=b"}}},
		{"padding and unknown keys", []string{"", "", "retpoline=Y", "name=x", "novalue"}, Info{Name: "x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ReadInfo(elftest.Module(tc.entries...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadInfoErrors(t *testing.T) {
	ko := elftest.Module("name=x")
	for _, tc := range []struct {
		name string
		ko   []byte
		want string
	}{
		{"empty", nil, "ELF"},
		{"text", []byte("hello"), "ELF"},
		{"cut", ko[:len(ko)-64], "ELF"},
		{"no section", elftest.Static("x"), "no .modinfo"},
		{"no name", elftest.Module("depends=a"), "no name"},
		{"section outside of the file", hugeSection(ko, 1<<20), "read .modinfo"},
		{"section too large", hugeSection(ko, maxModinfo+1), "too many"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := ReadInfo(tc.ko)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// hugeSection changes the size of a module's first real section.
func hugeSection(ko []byte, size uint64) []byte {
	out := bytes.Clone(ko)
	table := binary.LittleEndian.Uint64(out[40:]) // e_shoff
	binary.LittleEndian.PutUint64(out[table+64+32:], size)
	return out
}

func TestUnsigned(t *testing.T) {
	ko := elftest.Module("name=x")
	signed := func(length uint32, signature string) []byte {
		out := append(bytes.Clone(ko), signature...)
		out = append(out, 0, 0, 2, 0, 0, 0, 0, 0)
		out = binary.BigEndian.AppendUint32(out, length)
		return append(out, signatureMagic...)
	}
	tooLong := signed(1<<32-1, "sig")
	for _, tc := range []struct {
		name     string
		in, want []byte
	}{
		{"signed", signed(5, "12345"), ko},
		{"not signed", ko, ko},
		{"length beyond the file", tooLong, tooLong},
		{"nothing but the magic", []byte(signatureMagic), []byte(signatureMagic)},
		{"empty", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Unsigned(tc.in); !bytes.Equal(got, tc.want) {
				t.Errorf("%d bytes are left, want %d", len(got), len(tc.want))
			}
		})
	}
}

func FuzzReadInfo(f *testing.F) {
	f.Add(elftest.Module("name=virtio-pci", "depends=a,b", "softdep=pre: c post: d", "alias=x"))
	f.Add(append(elftest.Module("name=x"), signatureMagic...))
	f.Fuzz(func(t *testing.T, ko []byte) {
		if plain := Unsigned(ko); !bytes.HasPrefix(ko, plain) {
			t.Error("a module without its signature is not its beginning")
		}
		info, err := ReadInfo(ko)
		if err != nil {
			return
		}
		for _, name := range append(info.Depends, info.Name) {
			if name == "" || strings.ContainsAny(name, "-,\x00") {
				t.Errorf("bad name %q", name)
			}
		}
	})
}
