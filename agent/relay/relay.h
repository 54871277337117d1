// Declarations that relay.go, slots.go and relay.c share.
#ifndef KATABOX_RELAY_H
#define KATABOX_RELAY_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

// What to copy, and when to stop.
struct relay_plan {
	int in;   // a pipe that does not block
	int out;  // a socket that does not block
	int stop; // becomes readable when the copying is to stop
	size_t size;            // of the block
	size_t small;           // a read of fewer bytes is followed by a pause
	struct timespec pause;  // for more to arrive
	struct timespec idle;   // without input, after which the copying stops
};

// What was copied. Of the block, the bytes from one index up to the other were read
// and not sent.
struct relay_result {
	uint64_t read;
	size_t from, to;
};

// The block is not in the plan, because it is Go's memory, as the plan is.
void relay_run(const struct relay_plan *plan, char *block, struct relay_result *result);

// A file with slots for the data, of which a byte on the socket tells the reader. The
// reader frees the oldest slot by a byte of its own.
struct relay_slots {
	int file;
	unsigned count; // of slots
	size_t size;    // of a slot
	size_t header;  // the length of the data's length, which is before it in the block
	char kind;      // the byte
	unsigned used;  // slots that the reader has not freed; the caller keeps it
	unsigned next;  // the slot to use next; the caller keeps it
	int failed;     // set if the file could not be written to
};

// relay_run for data that goes through slots. The plan's size is that of the data, which
// begins after the header in the block; the result's indexes count from there.
void relay_slots_run(const struct relay_plan *plan, struct relay_slots *slots, char *block, struct relay_result *result);

#endif
