package logs

import (
	"fmt"
	"io"

	"github.com/sirupsen/logrus"
)

// Console is a logrus hook that shows warnings and worse on the machine's
// console until a reader of the ring has attached: earlier problems would be
// visible nowhere else.
type Console struct {
	W    io.Writer
	Ring *Ring
}

var _ logrus.Hook = (*Console)(nil)

// Levels returns the levels for which the hook is called.
func (*Console) Levels() []logrus.Level {
	return []logrus.Level{logrus.WarnLevel, logrus.ErrorLevel, logrus.FatalLevel, logrus.PanicLevel}
}

// Fire writes one line. Errors of the console are ignored.
func (c *Console) Fire(e *logrus.Entry) error {
	if c.Ring.taken() {
		return nil
	}
	text := e.Message
	if err, ok := e.Data[logrus.ErrorKey].(error); ok {
		text += ": " + err.Error()
	}
	_, _ = fmt.Fprintf(c.W, "kata-agent: %s: %s\n", e.Level, text)
	return nil
}
