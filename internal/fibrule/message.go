package fibrule

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// A rule's message: struct fib_rule_hdr and attributes (include/uapi/linux/
// fib_rules.h).
const (
	headerLen  = 12
	attrLen    = 4
	attrAlign  = 4
	flagInvert = 2

	attrDestination   = 1
	attrSource        = 2
	attrIn            = 3
	attrJump          = 4 // the target of FR_ACT_GOTO
	attrPriority      = 6
	attrMark          = 10
	attrFlow          = 11
	attrTunnel        = 12
	attrSuppressGroup = 13
	attrSuppress      = 14
	attrTable         = 15
	attrMask          = 16
	attrOut           = 17
	attrPad           = 18
	attrL3mdev        = 19
	attrUIDs          = 20
	attrOrigin        = 21
	attrProtocol      = 22
	attrSourcePorts   = 23
	attrDestPorts     = 24
	attrDSCP          = 25
	attrFlowLabel     = 26
	attrSourceMask    = 28
	attrDestMask      = 29
)

// noNumber is the kernel's -1 in an attribute.
const noNumber = 1<<32 - 1

var native = binary.NativeEndian

// Decode reads one message of the kernel. odd names the first thing that a Rule
// cannot hold, or is empty. It fails for what is not a message of a rule.
func Decode(message []byte) (rule Rule, odd string, err error) {
	if len(message) < headerLen {
		return rule, "", fmt.Errorf("a rule's message of %d bytes: want %d at least", len(message), headerLen)
	}
	d := decoder{rule: Rule{Suppress: NoSuppression, Action: message[7], TOS: message[3], Table: uint32(message[4])}}
	switch message[0] {
	case unix.AF_INET:
	case unix.AF_INET6:
		d.rule.IPv6 = true
	default:
		return rule, "", fmt.Errorf("a rule of address family %d", message[0])
	}
	d.destLen, d.sourceLen = int(message[1]), int(message[2])
	d.rule.Invert = native.Uint32(message[8:])&flagInvert != 0
	for rest := message[headerLen:]; len(rest) >= attrLen; {
		size := int(native.Uint16(rest))
		if size < attrLen || size > len(rest) {
			return rule, "", fmt.Errorf("an attribute of %d bytes in a rule's message with %d left", size, len(rest))
		}
		const kindMask = 1<<14 - 1 // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
		if err := d.attr(int(native.Uint16(rest[2:])&kindMask), rest[attrLen:size]); err != nil {
			return rule, "", err
		}
		rest = rest[min((size+attrAlign-1)&^(attrAlign-1), len(rest)):]
	}
	return d.finish()
}

// decoder is one Decode.
type decoder struct {
	rule               Rule
	destLen, sourceLen int
	odd                string
}

func (d *decoder) finish() (Rule, string, error) {
	switch d.rule.Action {
	case Lookup:
	case Blackhole, Unreachable, Prohibit:
		d.rule.Table, d.rule.Suppress = 0, NoSuppression
	default:
		d.rule.Table = 0
		d.note(d.rule.action())
	}
	d.rule.Mark &= d.rule.Mask // the other bits are not compared
	return d.rule, d.odd, nil
}

// note keeps the first thing that is odd.
func (d *decoder) note(what string) {
	if d.odd == "" {
		d.odd = what
	}
}

// lengths has how long the values of attributes are; others have any length.
var lengths = map[int]int{
	attrPriority: 4, attrMark: 4, attrSuppress: 4, attrTable: 4, attrMask: 4, attrUIDs: 8, attrOrigin: 1, attrProtocol: 1,
	attrSourcePorts: 4, attrDestPorts: 4, attrSourceMask: 2, attrDestMask: 2, attrSuppressGroup: 4,
}

func (d *decoder) attr(kind int, value []byte) (err error) {
	if want, fixed := lengths[kind]; fixed && len(value) != want {
		return fmt.Errorf("attribute %d of a rule has %d bytes: want %d", kind, len(value), want)
	}
	r := &d.rule
	switch kind {
	case attrDestination:
		r.Destination, err = d.prefix(value, d.destLen)
	case attrSource:
		r.Source, err = d.prefix(value, d.sourceLen)
	case attrIn:
		r.In = text(value)
	case attrOut:
		r.Out = text(value)
	case attrUIDs:
		r.UIDs = UIDs{true, native.Uint32(value), native.Uint32(value[4:])}
	case attrSourcePorts:
		r.SourcePorts = Ports{native.Uint16(value), native.Uint16(value[2:])}
	case attrDestPorts:
		r.DestinationPorts = Ports{native.Uint16(value), native.Uint16(value[2:])}
	default:
		d.number(kind, value)
	}
	return err
}

// number reads an attribute that is one number.
func (d *decoder) number(kind int, value []byte) {
	r := &d.rule
	switch kind {
	case attrPriority:
		r.Priority = native.Uint32(value)
	case attrMark:
		r.Mark = native.Uint32(value)
	case attrMask:
		r.Mask = native.Uint32(value)
	case attrTable:
		r.Table = native.Uint32(value)
	case attrSuppress:
		d.suppress(native.Uint32(value))
	case attrOrigin:
		r.Origin = value[0]
	case attrProtocol:
		r.Protocol = value[0]
	default:
		d.other(kind, value)
	}
}

// other notes an attribute that a Rule has no place for.
func (d *decoder) other(kind int, value []byte) {
	switch kind {
	case attrPad, attrJump:
	case attrSourceMask, attrDestMask: // of one port, unless it is masked
		if native.Uint16(value) != 1<<16-1 {
			d.note("a mask for ports")
		}
	case attrSuppressGroup:
		if native.Uint32(value) != noNumber {
			d.note("suppress_ifgroup")
		}
	case attrFlow:
		d.note("realms")
	case attrTunnel:
		d.note("tun_id")
	case attrL3mdev:
		d.note("l3mdev")
	case attrDSCP:
		d.note("dscp")
	case attrFlowLabel:
		d.note("flowlabel")
	default:
		d.note(fmt.Sprintf("attribute %d", kind))
	}
}

func (d *decoder) suppress(length uint32) {
	switch {
	case length == noNumber:
	case int64(length) > int64(d.bits()):
		d.rule.Suppress = d.bits() // no prefix is longer
	default:
		d.rule.Suppress = int(length)
	}
}

func (d *decoder) bits() int {
	if d.rule.IPv6 {
		return 8 * 16
	}
	return 8 * 4
}

// prefix reads a network; one of length 0 is any.
func (d *decoder) prefix(value []byte, length int) (netip.Prefix, error) {
	addr, ok := netip.AddrFromSlice(value)
	if !ok || addr.BitLen() != d.bits() || length > addr.BitLen() {
		return netip.Prefix{}, fmt.Errorf("a rule's network %x/%d", value, length)
	}
	if length == 0 {
		return netip.Prefix{}, nil
	}
	return netip.PrefixFrom(addr, length).Masked(), nil
}

func text(value []byte) string {
	name, _, _ := bytes.Cut(value, []byte{0})
	return string(name)
}
