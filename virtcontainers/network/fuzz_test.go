package network

import (
	"encoding/json"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
)

func FuzzRecord(f *testing.F) {
	for _, seed := range []string{
		`{"version":1,"namespace":{"dev":4,"inode":4026532000,"cookie":7},"links":[{"link":2,"made":"tap2_kata","kind":"tuntap","shaper":"ifb2_kata","ingress":true,"priority":49152,"rate":true}]}`,
		`{"version":1,"namespace":{"dev":0,"inode":0},"links":null}`,
		`{"version":1,"links":[{"link":-1,"priority":70000}]}`,
		`{}`, `null`, `[]`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, made []byte) {
		rec, err := decodeRecord(made)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Fatalf("the error of a bad record is of another kind: %v", err)
			}
			if Clean("/run/netns/nobody-made-this", made) == nil {
				t.Fatal("Clean takes what cannot be read")
			}
			return
		}
		again, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		same, err := decodeRecord(again)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		if diff := cmp.Diff(rec, same); diff != "" {
			t.Fatal(diff)
		}
	})
}
