package modules

import (
	"encoding/binary"
	"strings"
)

// signatureMagic ends a signed module (include/linux/module_signature.h).
const signatureMagic = "~Module signature appended~\n"

// signatureInfo is the size of struct module_signature, which precedes the magic;
// its last 4 bytes are the signature's length, big endian.
const signatureInfo = 12

// Unsigned returns a module without its appended signature.
//
// The kernel checks the signature of each module it loads: under TCG the boot
// modules took 97 ms with and 58 ms without (the GROUP line that `go test -run
// TestDebianBoots -v ./guest-image` prints). Here a signature proves nothing: an
// attacker who can change a module in the archive can change the /init beside it.
// The kernel notes the missing signature as taint flag E
// (Documentation/admin-guide/tainted-kernels.rst).
func Unsigned(ko []byte) []byte {
	body := len(ko) - len(signatureMagic) - signatureInfo
	if body < 0 || !strings.HasSuffix(string(ko[body:]), signatureMagic) {
		return ko
	}
	length := binary.BigEndian.Uint32(ko[body+signatureInfo-4:])
	if uint64(length) > uint64(body) {
		return ko
	}
	return ko[:body-int(length)]
}
