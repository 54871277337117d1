package journal

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/sirupsen/logrus"
)

// Names of a line's own values; a field with such a name is left out.
const (
	numberField  = "seq"
	timeField    = "time"
	levelField   = "level"
	messageField = "msg"
	// sourceField is the field of lines that are not the shim's: "agent".
	sourceField = "source"
)

const (
	// maxText bounds a message and each value, in bytes.
	maxText = 4 << 10
	// maxFields bounds the fields of a line, and maxLine their bytes as JSON.
	maxFields = 32
	maxLine   = 16 << 10
)

// encode returns an entry as a JSON object, to which appendTo adds its number.
func encode(e *logrus.Entry) []byte {
	values := make(map[string]any, len(e.Data)+3)
	for name, value := range e.Data {
		if len(values) < maxFields {
			values[cut(name)] = plain(value)
		}
	}
	delete(values, numberField)
	values[timeField] = e.Time.UTC().Format(time.RFC3339Nano)
	values[levelField] = e.Level.String()
	values[messageField] = cut(e.Message)
	text, err := json.Marshal(values)
	if err == nil && len(text) <= maxLine {
		return text
	}
	return bare(e, values[timeField].(string))
}

// bare returns a line without its fields.
func bare(e *logrus.Entry, at string) []byte {
	text, _ := json.Marshal(map[string]string{ // cannot fail: encoding/json accepts any string
		timeField: at, levelField: e.Level.String(), messageField: cut(e.Message) + " (its fields are too long)",
	})
	return text
}

// plain returns a field's value as a number, a boolean or a text.
func plain(value any) any {
	switch v := value.(type) {
	case bool, int, int32, int64, uint, uint32, uint64:
		return v
	case error:
		return cut(v.Error())
	case string:
		return cut(v)
	}
	return cut(fmt.Sprint(value))
}

func cut(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "..."
	}
	return s
}

// appendTo appends the line with its number first.
func (l line) appendTo(out []byte) []byte {
	out = append(out, `{"`+numberField+`":`...)
	out = strconv.AppendUint(out, l.number, 10)
	out = append(out, ',')
	out = append(out, l.text[1:]...)
	return append(out, '\n')
}
