package inside

import "os"

// Nothing is the argument of a program that ends at once, with status 0.
const Nothing = "nothing"

func init() {
	if len(os.Args) == 2 && os.Args[1] == Nothing {
		os.Exit(0)
	}
}
