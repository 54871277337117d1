package timeline

import (
	"encoding/json"
	"fmt"
	"io"
)

// traceEvent is one event of the Trace Event Format, which Perfetto and
// chrome://tracing read ("Trace Event Format", the Chromium project's document).
// Times are in microseconds.
type traceEvent struct {
	Name  string            `json:"name"`
	Phase string            `json:"ph"`
	Time  float64           `json:"ts"`
	Took  float64           `json:"dur,omitempty"`
	PID   int               `json:"pid"`
	TID   int               `json:"tid"`
	Scope string            `json:"s,omitempty"`
	Args  map[string]string `json:"args,omitempty"`
}

// The trace's processes.
const hostPID, guestPID = 1, 2

// WriteTrace writes the timeline as a trace: the host and the guest are its
// processes, the pod's boot and each container their threads.
func (t *Timeline) WriteTrace(w io.Writer) error {
	events := []traceEvent{
		{Name: "process_name", Phase: "M", PID: hostPID, Args: map[string]string{"name": "host: sandbox " + t.Sandbox}},
		{Name: "process_name", Phase: "M", PID: guestPID, Args: map[string]string{"name": "guest (as it reports)"}},
	}
	for tid, sec := range t.sections() {
		for _, pid := range []int{hostPID, guestPID} {
			events = append(events, traceEvent{Name: "thread_name", Phase: "M", PID: pid, TID: tid, Args: map[string]string{"name": sec.title()}})
		}
		for _, r := range sec.rows {
			events = append(events, r.traceEvent(tid))
		}
	}
	out := json.NewEncoder(w)
	out.SetIndent("", " ")
	err := out.Encode(map[string]any{
		"displayTimeUnit": "ms", "traceEvents": events,
		"otherData": map[string]string{
			"sandbox": t.Sandbox, "began": t.Began.Format("2006-01-02T15:04:05.000000Z07:00"),
			"guest_slack": t.Slack.String(), "guest_error": t.GuestError,
		},
	})
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

func (s Span) traceEvent(tid int) traceEvent {
	const micro = 1e-3 // of a nanosecond
	e := traceEvent{Name: s.Name, Phase: "X", Time: float64(s.Start) * micro, Took: float64(s.End-s.Start) * micro, PID: hostPID, TID: tid}
	if s.Side == Guest {
		e.PID = guestPID
	}
	if s.isEvent() {
		e.Phase, e.Scope = "i", "t" // an instant of its thread
	}
	return e
}
