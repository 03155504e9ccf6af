package kvcache

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The README's quick start is a program: it builds outside of this module, and prints what its last comment says.
func TestReadme(t *testing.T) {
	readme := string(must(os.ReadFile("README.md"))(t))
	_, program, _ := strings.Cut(readme, "```go\n")
	program, _, found := strings.Cut(program, "```")
	if !found {
		t.Fatal("no program in README.md")
	}
	goMod := string(must(os.ReadFile("go.mod"))(t))
	goSum := must(os.ReadFile("go.sum"))(t)
	module := strings.Fields(goMod)[1]
	if !strings.Contains(program, `"`+module+`"`) {
		t.Error("the program does not import ", module)
	}
	place, err := filepath.Abs(".")
	check(t, err)
	folder := t.TempDir()
	goMod = strings.Replace(goMod, module, "quickstart", 1) +
		"\nrequire " + module + " v0.0.0\nreplace " + module + " => " + place + "\n"
	for name, text := range map[string]string{"main.go": program, "go.mod": goMod, "go.sum": string(goSum)} {
		check(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	path := must(LibraryPath())(t)
	if strings.Contains(path, "/") { // not a name for the system's loader
		path = must(filepath.Abs(path))(t)
	}
	run := exec.Command("go", "run", "-mod=mod", ".")
	run.Dir = folder
	run.Env = append(os.Environ(), "KVCACHE_LIBRARY="+path, "GOFLAGS=", "GOWORK=off")
	output, err := run.CombinedOutput()
	_, want, _ := strings.Cut(program, "fmt.Println(len(users), stats.PagesUsed) // ")
	want, _, _ = strings.Cut(want, "\n")
	if err != nil || strings.TrimSpace(string(output)) != want || want == "" {
		t.Errorf("%v: %s instead of %s", err, output, want)
	}
}
