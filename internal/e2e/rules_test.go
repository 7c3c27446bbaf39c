package e2e

import "github.com/countersign/countersign/internal/awsfake"

const (
	eventSource = "countersign"
	eventTenant = "default"
)

func (d *deployment) rules() []awsfake.Rule { return nil }
