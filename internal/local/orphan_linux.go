package local

import "syscall"

// endsWithUs has the program killed when this process dies, however it does.
func endsWithUs(a syscall.SysProcAttr) *syscall.SysProcAttr {
	a.Pdeathsig = syscall.SIGKILL
	return &a
}
