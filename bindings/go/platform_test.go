package kvcache

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Elsewhere a build fails with one sentence, and not with the names that some file lacks there.
func TestBuildsElsewhere(t *testing.T) {
	for _, system := range []string{"windows/amd64", "linux/386", "linux/arm"} {
		goos, goarch, _ := strings.Cut(system, "/")
		build := exec.Command("go", "build", "./internal/platform")
		build.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=")
		output, err := build.CombinedOutput()
		if err == nil || strings.Count(string(output), "unsupported.go:") != 1 ||
			!strings.Contains(string(output), `"kvcache needs Linux or macOS, and a 64-bit little-endian CPU"`) {
			t.Errorf("%s: %v: %s", system, err, output)
		}
	}
	imports := must(exec.Command("go", "list", "-f", "{{.Imports}}", ".").Output())(t)
	if !strings.Contains(string(imports), "kvcache.dev/kvcache/internal/platform") {
		t.Errorf("the package imports %s alone", imports)
	}
}
