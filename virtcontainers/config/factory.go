package config

import "errors"

// maxSpares is the most spare machines of one configuration.
const maxSpares = 100

var factoryKeys = []key{
	define("factory.enable_template", false, boolean,
		func(d *draft) *bool { return &d.Factory.Template },
		"Start guests as copies of a guest that has booted. Without a matching template a guest boots, and the template of "+
			"this configuration is made in the background (or beforehand, by kata-runtime factory init). A guest also boots if its template "+
			"turns out to be bad. Copies share the random numbers that the template's kernel drew at its boot: see "+
			"docs/threat-model.md. An annotation can only turn templates off.").
		annotated("config.factory.enable_template").checked(checkTemplateOff),
	define("factory.template_path", "/run/vc/vm/template", absolutePath,
		func(d *draft) *string { return &d.Factory.TemplatePath },
		"Where templates are kept: a directory for templates alone that only root can write to, best in memory. A new one "+
			"has mode 0700. Each takes as much room as a guest has used of its memory when its agent is up.").orDefault(),
	define("factory.vm_cache_number", int64(0),
		integer[uint32]("an integer from 0 to 100", 0, maxSpares),
		func(d *draft) *uint32 { return &d.Factory.VMs },
		"How many guests of this configuration are kept running for future pods (a pool). After a pod's first container has "+
			"started, missing ones are started in the background, from the template if enable_template is set. Each takes the memory "+
			"of an idle guest."),
}

// checkTemplateOff lets a pod turn templates off, not on: machines of one
// template share the kernel's secrets, so the operator decides.
func checkTemplateOff(v any) error {
	if on, _ := v.(bool); on {
		return errors.New("want false: only the configuration file can turn templates on")
	}
	return nil
}
