package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/moby/sys/user"
)

// environment is what a process gets of its spec's: each name once, with its
// last value, and a HOME. Its errors are libcontainer's, which runc's users
// know.
func environment(env []string, home func() string) ([]string, error) {
	seen := map[string]bool{}
	hasHome := false
	var list []string // last to first
	for _, kv := range slices.Backward(env) {
		name, value, ok := strings.Cut(kv, "=")
		switch {
		case !ok:
			return nil, errors.New("invalid environment variable: missing '='")
		case name == "":
			return nil, errors.New("invalid environment variable: name cannot be empty")
		case strings.IndexByte(kv, 0) >= 0:
			return nil, fmt.Errorf(`invalid environment variable %q: contains nul byte (\x00)`, name)
		case seen[name]:
			continue
		}
		seen[name] = true
		if name == "HOME" {
			if hasHome = value != ""; !hasHome {
				continue
			}
		}
		list = append(list, kv)
	}
	slices.Reverse(list)
	if !hasHome {
		list = append(list, "HOME="+home())
	}
	return list, nil
}

// maxPasswd bounds how much of a container's /etc/passwd is read, in bytes.
const maxPasswd = 4 << 20

// homeOf is the home directory of a user of the container, "/" if its
// /etc/passwd does not say.
func homeOf(root *os.File, uid uint32) string {
	f, err := openRegular(root, "etc/passwd")
	if err != nil {
		return "/"
	}
	defer f.Close()
	users, err := user.ParsePasswdFilter(io.LimitReader(f, maxPasswd), func(u user.User) bool { return u.Uid == int(uid) })
	if err != nil || len(users) == 0 {
		return "/"
	}
	return users[0].Home
}
