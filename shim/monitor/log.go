package monitor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/katabox/katabox/shim/management"
)

// LogLine is one line of a pod's log.
type LogLine struct {
	// Number is higher than that of every earlier line.
	Number uint64 `json:"seq"`
	// Time, Level and Message are the entry's.
	Time    time.Time `json:"time"`
	Level   string    `json:"level"`
	Message string    `json:"msg"`
	// Source is the program that logged it: "agent", "console", or empty for the
	// shim.
	Source string `json:"source"`
	// JSON is the line with all its fields, without a newline.
	JSON json.RawMessage `json:"-"`
}

// Log returns the kept lines of the pod's log with numbers higher than after. If
// there is none it waits for the first, at most wait seconds, which are at most
// management.MaxLogWait.
func (p Pod) Log(ctx context.Context, after uint64, wait int) ([]LogLine, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(wait)*time.Second+askTimeout)
	defer cancel()
	query := url.Values{management.LogAfterKey: {strconv.FormatUint(after, 10)}, management.LogWaitKey: {strconv.Itoa(wait)}}
	text, err := p.request(ctx, http.MethodGet, management.LogPath+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("read log of pod %s: %w", p.ID, err)
	}
	var lines []LogLine
	for l := range bytes.Lines(text) {
		l = bytes.TrimSuffix(l, []byte("\n"))
		line := LogLine{JSON: l}
		if err := json.Unmarshal(l, &line); err != nil {
			return nil, fmt.Errorf("read log of pod %s: line %d: %w", p.ID, len(lines)+1, err)
		}
		lines = append(lines, line)
	}
	return lines, nil
}
