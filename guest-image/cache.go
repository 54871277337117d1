package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/katabox/katabox/guest-image/internal/deb"
)

// stampName is the file beside the outputs that records their inputs.
const stampName = ".guest-image.json"

// aptLists is a directory whose modification time changes when `apt-get update`
// finds something new.
const aptLists = "/var/lib/apt/lists"

// stamp records the inputs and the outputs of a build. The outputs are up to date
// if Content equals what a build would use now. Asking apt for that takes longer
// than everything else, so Request, which needs only files of this host, is
// compared first.
type stamp struct {
	Request request           `json:"request"`
	Content content           `json:"content"`
	Outputs map[string]output `json:"outputs"`
}

// request determines which kernel package is used.
type request struct {
	// Source is a package's name or the paths of package files.
	Source string `json:"source"`
	// State is the modification time and size of the files in which Source is
	// looked up.
	State string `json:"state"`
}

// content determines the bytes of the outputs. Hashes are SHA-256.
type content struct {
	Builder     string `json:"builder"` // this program, including its list of modules
	Agent       string `json:"agent"`
	Deb         string `json:"deb"`             // a space between those of several packages
	Tools       string `json:"tools,omitempty"` // busybox
	IPTables    string `json:"iptables,omitempty"`
	Modules     string `json:"modules,omitempty"` // those of -module, a space between two
	Compression string `json:"compression"`
}

// output identifies a written file without reading it.
type output struct {
	Size    int64 `json:"size"`
	ModTime int64 `json:"mtime_ns"`
}

// with returns c with the digests of other packages.
func (c content) with(sum string) content {
	c.Deb = sum
	return c
}

// currentRequest returns the request for the flags on this host.
func currentRequest(opts options) request {
	source, places := opts.kernelPackage, []string{aptLists}
	if len(opts.debs) > 0 {
		source, places = strings.Join(opts.debs, " "), opts.debs
	}
	var states []string
	for _, place := range places {
		// An error is reported by the step that needs the file.
		if info, err := os.Stat(place); err == nil {
			states = append(states, fmt.Sprintf("%d %d", info.ModTime().UnixNano(), info.Size()))
		}
	}
	return request{Source: source, State: strings.Join(states, ", ")}
}

// currentContent hashes all inputs except the packages.
func currentContent(agent []byte, tools tools, opts options) (content, error) {
	self, err := os.Executable()
	if err != nil {
		return content{}, fmt.Errorf("find this program: %w", err)
	}
	builder, err := deb.HashFile(self)
	if err != nil {
		return content{}, fmt.Errorf("hash this program: %w", err)
	}
	sum := sha256.Sum256(agent)
	c := content{Builder: builder, Agent: hex.EncodeToString(sum[:]), Modules: strings.Join(opts.modules, " "), Compression: opts.compress, IPTables: tools.iptables.sum()}
	if len(tools.debug.busybox) > 0 {
		sum := sha256.Sum256(tools.debug.busybox)
		c.Tools = hex.EncodeToString(sum[:])
	}
	return c, nil
}

// readStamp returns the stamp in dir, or an empty one if it cannot be read: then
// the image is built.
func readStamp(dir string) stamp {
	var s stamp
	data, err := os.ReadFile(filepath.Join(dir, stampName))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err != nil {
		return stamp{}
	}
	return s
}

// write writes the stamp into dir.
func (s stamp) write(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = writeFile(filepath.Join(dir, stampName), append(data, '\n'))
	return err
}

// intact reports whether the outputs in dir are those that the stamp describes.
func (s stamp) intact(dir string) bool {
	for _, name := range []string{kernelName, initrdName} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || outputOf(info) != s.Outputs[name] {
			return false
		}
	}
	return true
}

func outputOf(info os.FileInfo) output {
	return output{Size: info.Size(), ModTime: info.ModTime().UnixNano()}
}
