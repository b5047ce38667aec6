package examples

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An argument or a flag that is not known is refused before anything runs.
func TestMain_RefusesArguments(t *testing.T) {
	for _, name := range []string{"profiles", "quickstart", "rollout"} {
		bin := filepath.Join(t.TempDir(), name)
		if out, err := exec.Command("go", "build", "-o", bin, "./"+name).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, arg := range []string{"extra", "-nosuch"} {
			out, err := exec.Command(bin, arg).CombinedOutput()
			if e, ok := errors.AsType[*exec.ExitError](err); !ok || e.ExitCode() != 2 || !strings.Contains(string(out), arg) {
				t.Errorf("%s %s: %v, %.300s; want exit status 2", name, arg, err, out)
			}
		}
	}
}
