//go:build !linux

package dynamolocal

import (
	"errors"
	"os/exec"
)

var errNoNamespaces = errors.New("this system has no network namespaces")

func contain(*exec.Cmd) error { return errNoNamespaces }

func loopbackUp() error { return errNoNamespaces }
