package fibrule

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// Encode returns the message that adds the rule (RTM_NEWRULE) or deletes it
// (RTM_DELRULE), without netlink's header.
func (r Rule) Encode() []byte {
	e := encoder{make([]byte, headerLen)}
	e.message[0] = unix.AF_INET
	if r.IPv6 {
		e.message[0] = unix.AF_INET6
	}
	e.message[3], e.message[7] = r.TOS, r.Action
	if r.Table <= 1<<8-1 {
		e.message[4] = uint8(r.Table)
	}
	if r.Invert {
		native.PutUint32(e.message[8:], flagInvert)
	}
	e.message[1] = e.prefix(attrDestination, r.Destination)
	e.message[2] = e.prefix(attrSource, r.Source)
	e.number(attrPriority, r.Priority)
	if r.Mask != 0 {
		e.number(attrMark, r.Mark)
		e.number(attrMask, r.Mask)
	}
	e.name(attrIn, r.In)
	e.name(attrOut, r.Out)
	if r.Action == Lookup {
		e.number(attrTable, r.Table)
		if r.Suppress != NoSuppression {
			e.number(attrSuppress, uint32(r.Suppress))
		}
	}
	if r.UIDs.Set {
		e.attr(attrUIDs, native.AppendUint32(native.AppendUint32(nil, r.UIDs.First), r.UIDs.Last))
	}
	if r.Protocol != 0 {
		e.attr(attrProtocol, []byte{r.Protocol})
	}
	e.ports(attrSourcePorts, r.SourcePorts)
	e.ports(attrDestPorts, r.DestinationPorts)
	e.attr(attrOrigin, []byte{r.Origin})
	return e.message
}

type encoder struct{ message []byte }

func (e *encoder) attr(kind uint16, value []byte) {
	e.message = native.AppendUint16(e.message, uint16(attrLen+len(value)))
	e.message = append(native.AppendUint16(e.message, kind), value...)
	for len(e.message)%attrAlign != 0 {
		e.message = append(e.message, 0)
	}
}

func (e *encoder) number(kind uint16, n uint32) { e.attr(kind, native.AppendUint32(nil, n)) }

func (e *encoder) name(kind uint16, name string) {
	if name != "" {
		e.attr(kind, append([]byte(name), 0))
	}
}

func (e *encoder) ports(kind uint16, p Ports) {
	if p != (Ports{}) {
		e.attr(kind, native.AppendUint16(native.AppendUint16(nil, p.First), p.Last))
	}
}

// prefix adds a network and returns its length.
func (e *encoder) prefix(kind uint16, p netip.Prefix) uint8 {
	if !p.IsValid() {
		return 0
	}
	e.attr(kind, p.Addr().AsSlice())
	return uint8(p.Bits())
}
