package images

import (
	"fmt"
	"slices"

	"github.com/katabox/katabox/deploy/image/pack"
)

// The ports of the two web servers. The second shares the host's network and is
// expected on this port (cri-tools, images/hostnet-nginx).
const (
	webPort     = 80
	hostnetPort = 12003
)

// nginxLayer adds the server's configuration, page and directories.
func nginxLayer(files layer) layer {
	content := slices.Concat(files, layer{
		nginxConfig(webPort),
		{Path: "var/www/index.html", Mode: 0o644, Data: []byte("<html><body>Welcome to nginx</body></html>\n")},
	})
	// It opens its compiled-in log before it reads its configuration.
	return append(pack.Dirs("var/log/nginx", "var/lib/nginx"), content...)
}

// nginxConfig is a server of one page that writes no file but its pid.
func nginxConfig(port int) pack.File {
	text := fmt.Sprintf(`pid /var/run/nginx.pid;
error_log stderr;
worker_processes 1;
events { worker_connections 64; }
http {
	access_log off;
	server {
		listen %d;
		root /var/www;
	}
}
`, port)
	return pack.File{Path: "etc/nginx/nginx.conf", Mode: 0o644, Data: []byte(text)}
}
