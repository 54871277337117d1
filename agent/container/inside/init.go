package inside

import (
	"os"

	"github.com/opencontainers/runc/libcontainer"
)

func init() {
	if len(os.Args) == 2 && os.Args[1] == "init" {
		libcontainer.Init() // Does not return.
	}
}
