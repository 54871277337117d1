package ginkgo

import (
	"fmt"
	"strings"
)

// Table returns a list in the documentation's format.
func Table(known []Exception) string {
	var b strings.Builder
	b.WriteString("| case | why a virtual machine cannot |\n| --- | --- |\n")
	for _, k := range known {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.ReplaceAll(k.Name, "|", `\|`), k.Why)
	}
	return b.String()
}
