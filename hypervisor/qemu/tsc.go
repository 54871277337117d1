package qemu

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// readTSC reads the CPU's time stamp counter.
func readTSC() uint64

// tscMeter measures the rate of the host's time stamp counter, which is the
// guest's too under TCG (QEMU, cpu_get_host_ticks). The guest is told the rate:
// on a busy host its own measurement is interrupted, and a clock that ran
// several times too fast was seen.
type tscMeter struct {
	// usable is set if the counter runs at a constant rate.
	usable bool
	start  tscPoint
}

// tscPoint is one moment on both clocks.
type tscPoint struct {
	at    time.Duration // rawClock
	ticks uint64
}

const (
	// minTSCSpan is the shortest time over which the rate is measured: readings
	// are off by less than a microsecond, which is 0.01 % of it.
	minTSCSpan = 10 * time.Millisecond
	// goodReading is how close together the two clocks should be read.
	goodReading = time.Microsecond
)

func newTSCMeter(cpuinfo string) tscMeter {
	flags, err := os.ReadFile(cpuinfo)
	if err != nil || !strings.Contains(string(flags), " constant_tsc ") || !strings.Contains(string(flags), " nonstop_tsc ") {
		return tscMeter{}
	}
	return tscMeter{usable: true, start: readTSCPoint()}
}

// rawClock reads the clock that no time service slews (clock_gettime(2),
// CLOCK_MONOTONIC_RAW): chrony may by 8 %.
func rawClock() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &now) // since Linux 2.6.28
	return time.Duration(now.Nano())
}

// readTSCPoint reads the counter between two readings of the clock, and retries
// if it was interrupted.
func readTSCPoint() tscPoint {
	var best tscPoint
	shortest := time.Duration(1<<63 - 1)
	for range 100 {
		before := rawClock()
		ticks := readTSC()
		span := rawClock() - before
		if span < shortest {
			shortest, best = span, tscPoint{before + span/2, ticks}
		}
		if shortest < goodReading {
			break
		}
	}
	return best
}

// kHz returns the counter's rate, or 0 if it has no constant one. It may wait
// until the measurement is long enough.
func (m tscMeter) kHz() uint64 {
	if !m.usable {
		return 0
	}
	if left := minTSCSpan - (rawClock() - m.start.at); left > 0 {
		time.Sleep(left)
	}
	end := readTSCPoint()
	span := end.at - m.start.at
	return uint64(float64(end.ticks-m.start.ticks) / float64(span.Nanoseconds()) * 1e6)
}
