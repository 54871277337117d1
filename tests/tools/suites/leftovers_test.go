package main

import (
	"strings"
	"testing"
	"time"
)

// Processes that a command leaves behind in their own session are killed when
// it ends, whether it passed or not; those of another command are not.
func TestLeftoversEnd(t *testing.T) {
	r := module(t, map[string]string{})
	const marker = "86399.25"
	leave := suite{name: "leave", command: []string{"sh", "-c", "setsid sleep " + marker + " >/dev/null 2>&1 & sleep 1"}, timeout: time.Minute}
	o := r.run(t.Context(), leave, leave.args(), "leave")
	if o.err != nil {
		t.Fatal(o.err)
	}
	if left := withEnv(envCommand + "=" + r.word("leave")); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if !strings.Contains(string(o.tally.noise), "killed 1 processes") {
		t.Errorf("the output does not say so: %q", o.tally.noise)
	}
}
