package installer

import (
	"bytes"
	"fmt"
	"strings"
)

// A block is the text that the installer adds to another program's file, between
// two marker lines.
const (
	blockBegin = "# BEGIN katabox: kata-runtime install wrote these lines, kata-runtime uninstall removes them"
	blockEnd   = "# END katabox"
	// noNewline follows blockBegin when the file before the block did not end
	// with a newline.
	noNewline = " (no newline before)"
	// wholeFile follows it when there was no file.
	wholeFile = " (no file before)"
)

// place is where in a file a block goes.
type place int

const (
	atStart place = iota
	atEnd
	asFile
)

// withBlock adds a block to a text that has none.
func withBlock(text []byte, where place, lines string) []byte {
	block := func(note string) string { return blockBegin + note + "\n" + lines + blockEnd + "\n" }
	switch {
	case where == asFile:
		return []byte(block(wholeFile))
	case where == atStart:
		return append([]byte(block("")), text...)
	case len(text) > 0 && text[len(text)-1] != '\n':
		return append(append(bytes.Clone(text), '\n'), block(noNewline)...)
	default:
		return append(bytes.Clone(text), block("")...)
	}
}

// withoutBlock removes the block, if there is one, and so undoes withBlock. gone
// reports that there was no file before. A block without its end marker is an
// error: it has been edited.
func withoutBlock(text []byte) (rest []byte, gone bool, err error) {
	begin := lineStart(text, blockBegin)
	if begin < 0 {
		return text, false, nil
	}
	length := lineStart(text[begin:], blockEnd)
	if length < 0 {
		return nil, false, fmt.Errorf("the line %q has no line %q after it: remove these lines by hand", blockBegin, blockEnd)
	}
	after := text[begin+length+len(blockEnd):]
	after = bytes.TrimPrefix(after, []byte("\n"))
	head, _, _ := strings.Cut(string(text[begin:]), "\n")
	before := text[:begin]
	if strings.HasSuffix(head, noNewline) && len(after) == 0 {
		before = bytes.TrimSuffix(before, []byte("\n"))
	}
	rest = append(bytes.Clone(before), after...)
	return rest, strings.HasSuffix(head, wholeFile) && len(rest) == 0, nil
}

// blockLines returns the lines between the markers; none without a block.
func blockLines(text []byte) []byte {
	begin := lineStart(text, blockBegin)
	if begin < 0 {
		return nil
	}
	_, lines, _ := bytes.Cut(text[begin:], []byte("\n"))
	if end := lineStart(lines, blockEnd); end >= 0 {
		return lines[:end]
	}
	return nil
}

// lineStart returns the offset of the first line that begins with prefix, or -1.
func lineStart(text []byte, prefix string) int {
	if bytes.HasPrefix(text, []byte(prefix)) {
		return 0
	}
	if i := bytes.Index(text, []byte("\n"+prefix)); i >= 0 {
		return i + 1
	}
	return -1
}
