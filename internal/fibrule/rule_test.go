package fibrule

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var samples = append(Defaults(), []Rule{
	{Priority: 1, Source: netip.MustParsePrefix("10.0.0.0/8"), Destination: netip.MustParsePrefix("10.1.2.3/32"), Action: Blackhole, Suppress: NoSuppression, Origin: 4},
	{IPv6: true, Priority: 1<<32 - 1, Source: netip.MustParsePrefix("fd00::/8"), Action: Lookup, Table: 1<<32 - 1, Suppress: 0},
	{Invert: true, Mark: 2, Mask: 3, In: "eth0", Out: "net1", TOS: 0x10, Protocol: 6, Action: Prohibit, Suppress: NoSuppression},
	{SourcePorts: Ports{1, 2}, DestinationPorts: Ports{80, 80}, UIDs: UIDs{true, 0, 7}, Action: Lookup, Table: 300, Suppress: 32},
	{Mask: 1, UIDs: UIDs{Set: true}, Action: Unreachable, Suppress: NoSuppression},
}...)

func TestDecodeReadsWhatEncodeWrites(t *testing.T) {
	for _, want := range samples {
		got, odd, err := Decode(want.Encode())
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" || odd != "" || err != nil {
			t.Errorf("%s (-want +got):\n%s%q, %v", want, diff, odd, err)
		}
	}
}

// What a Rule cannot hold is named.
func TestDecodeNamesTheOdd(t *testing.T) {
	plain := Rule{Action: Lookup, Table: 100, Suppress: NoSuppression}
	with := func(kind uint16, value ...byte) []byte {
		e := encoder{plain.Encode()}
		e.attr(kind, value)
		return e.message
	}
	action := func(is uint8) []byte {
		message := plain.Encode()
		message[7] = is
		return message
	}
	for want, message := range map[string][]byte{
		"realms": with(attrFlow, 1, 0, 0, 0), "tun_id": with(attrTunnel, 1, 0, 0, 0, 0, 0, 0, 0), "l3mdev": with(attrL3mdev, 1),
		"dscp": with(attrDSCP, 46), "flowlabel": with(attrFlowLabel, 1, 0, 0, 0), "suppress_ifgroup": with(attrSuppressGroup, 1, 0, 0, 0),
		"a mask for ports": with(attrSourceMask, 0xf, 0), "attribute 99": with(99), "goto": action(jump), "nop": action(nop), "action 99": action(99),
	} {
		if _, odd, err := Decode(message); odd != want || err != nil {
			t.Errorf("%q, %v, want %q", odd, err, want)
		}
	}
	for name, message := range map[string][]byte{
		"a port's full mask": with(attrDestMask, 0xff, 0xff), "no group": with(attrSuppressGroup, 0xff, 0xff, 0xff, 0xff),
		"no prefix": with(attrSuppress, 0xff, 0xff, 0xff, 0xff), "padding": with(attrPad),
	} {
		if got, odd, err := Decode(message); got != plain || odd != "" || err != nil {
			t.Errorf("%s: %s, %q, %v", name, got, odd, err)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := Rule{Action: Lookup, Table: 100, Source: netip.MustParsePrefix("10.0.0.0/8"), Suppress: NoSuppression}.Encode()
	changed := func(at int, to byte) []byte {
		message := append([]byte(nil), good...)
		message[at] = to
		return message
	}
	for name, message := range map[string][]byte{
		"empty": nil, "short": good[:headerLen-1], "family": changed(0, 1), "another family's network": changed(0, 10), "long network": changed(2, 33),
		"attribute's length": changed(headerLen, 3), "long attribute": changed(headerLen, 200), "cut": good[:headerLen+6],
	} {
		if _, _, err := Decode(message); err == nil {
			t.Errorf("%s: it was read", name)
		}
	}
}

// FuzzDecode reads any message: what is read, and is not odd, is written and read the same.
func FuzzDecode(f *testing.F) {
	for _, r := range samples {
		f.Add(r.Encode())
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		r, odd, err := Decode(message)
		if err != nil || odd != "" {
			return
		}
		if back, odd, err := Decode(r.Encode()); back != r || odd != "" || err != nil {
			t.Errorf("%s became %s, %q, %v", r, back, odd, err)
		}
	})
}
