package api

import "strings"

// ErrorText returns an error's text as valid UTF-8, as a protobuf string must be: an
// error may name a file, whose name is any bytes, and a message with others cannot be
// encoded.
func ErrorText(err error) string { return strings.ToValidUTF8(err.Error(), "?") }
