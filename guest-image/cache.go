package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/katabox/katabox/guest-image/internal/deb"
)

// stampName is the file beside the outputs that says what they were made of.
const stampName = ".guest-image.json"

// aptLists changes its time whenever `apt-get update` brings news.
const aptLists = "/var/lib/apt/lists"

// stamp says what a build was made of and what it wrote. Outputs are up to
// date when Content is what a build would use now. Asking apt for that takes
// longer than all the rest, so Request, with which the answer can be had from
// the files of this host alone, is compared first.
type stamp struct {
	Request request           `json:"request"`
	Content content           `json:"content"`
	Outputs map[string]output `json:"outputs"`
}

// request is what decides which kernel package is used.
type request struct {
	// Source is a package's name or the path of a package file.
	Source string `json:"source"`
	// State is the time and size of what Source is looked up in.
	State string `json:"state"`
}

// content is what decides the bytes of the outputs. Hashes are SHA-256.
type content struct {
	Builder     string `json:"builder"` // this program, its list of modules included
	Agent       string `json:"agent"`
	Deb         string `json:"deb"`
	Compression string `json:"compression"`
}

// output identifies a written file without reading it.
type output struct {
	Size    int64 `json:"size"`
	ModTime int64 `json:"mtime_ns"`
}

// with returns c for another package.
func (c content) with(sum string) content {
	c.Deb = sum
	return c
}

// currentRequest looks at this host.
func currentRequest(opts options) request {
	source, place := opts.kernelPackage, aptLists
	if opts.deb != "" {
		source, place = opts.deb, opts.deb
	}
	req := request{Source: source}
	// What cannot be looked at is reported by the step that needs it.
	if info, err := os.Stat(place); err == nil {
		req.State = fmt.Sprintf("%d %d", info.ModTime().UnixNano(), info.Size())
	}
	return req
}

// currentContent hashes all inputs but the package.
func currentContent(agent []byte, compression string) (content, error) {
	self, err := os.Executable()
	if err != nil {
		return content{}, fmt.Errorf("find this program: %w", err)
	}
	builder, err := deb.HashFile(self)
	if err != nil {
		return content{}, fmt.Errorf("hash this program: %w", err)
	}
	sum := sha256.Sum256(agent)
	return content{Builder: builder, Agent: hex.EncodeToString(sum[:]), Compression: compression}, nil
}

// readStamp returns the stamp in dir, an empty one if there is none that can
// be read: then the image is built.
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

// write puts the stamp into dir.
func (s stamp) write(dir string) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = writeFile(filepath.Join(dir, stampName), append(data, '\n'))
	return err
}

// intact says that the outputs in dir are those that the stamp is about.
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
