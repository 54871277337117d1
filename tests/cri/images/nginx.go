package images

import (
	"fmt"
	"slices"
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
		{path: "var/www/index.html", mode: 0o644, data: []byte("<html><body>Welcome to nginx</body></html>\n")},
	})
	// It opens its compiled-in log before it reads its configuration.
	return append(parents(content, "var/log/nginx", "var/lib/nginx"), content...)
}

// nginxConfig is a server of one page that writes no file but its pid.
func nginxConfig(port int) file {
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
	return file{path: "etc/nginx/nginx.conf", mode: 0o644, data: []byte(text)}
}
