package network

import "fmt"

// maxChanges bounds the list of one call; its last entry then says how many
// more there were.
const maxChanges = 256

// changes describes what was done.
type changes struct {
	list []string
	more int
}

func (c *changes) addf(format string, args ...any) {
	if len(c.list) >= maxChanges {
		c.more++
		return
	}
	c.list = append(c.list, fmt.Sprintf(format, args...))
}

func (c *changes) words() []string {
	if c.more == 0 {
		return c.list
	}
	return append(c.list, fmt.Sprintf("and %d more", c.more))
}
