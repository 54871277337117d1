package main

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// bootedLine is in the shim's log once per pod, with a t_STEP=MS per step.
const bootedLine = `msg="sandbox booted"`

var (
	stepField   = regexp.MustCompile(`\bt_([a-z_]+)=([0-9.]+)`)
	guestMicros = regexp.MustCompile(`\bguest_([a-z_]+)_us=([0-9]+)`)
)

// bootSteps collects the steps' durations, in milliseconds, from the lines of
// the log that are a pod's boot. The guest's own clock is among them.
func bootSteps(log string) (map[string]series, error) {
	steps := map[string]series{}
	for line := range strings.Lines(log) {
		if !strings.Contains(line, bootedLine) {
			continue
		}
		for _, m := range stepField.FindAllStringSubmatch(line, -1) {
			if ms, err := strconv.ParseFloat(m[2], 64); err == nil {
				steps["t_"+m[1]] = append(steps["t_"+m[1]], ms)
			}
		}
		for _, m := range guestMicros.FindAllStringSubmatch(line, -1) {
			if us, err := strconv.ParseFloat(m[2], 64); err == nil {
				steps["guest_"+m[1]] = append(steps["guest_"+m[1]], us/1000)
			}
		}
	}
	if len(steps) == 0 {
		return nil, errors.New("find the steps of the boots: the log has no line with " + bootedLine)
	}
	return steps, nil
}

// lastNumber returns the last value of a field in the log, or 0.
func lastNumber(log, field string) int64 {
	found := regexp.MustCompile(`\b`+field+`=([0-9]+)`).FindAllStringSubmatch(log, -1)
	if len(found) == 0 {
		return 0
	}
	n, err := strconv.ParseInt(found[len(found)-1][1], 10, 64)
	if err != nil {
		return 0
	}
	return n
}
