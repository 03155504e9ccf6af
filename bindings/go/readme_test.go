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
	if testing.Short() {
		t.Skip("builds a program, which other runs have done")
	}
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
	program, want := filepath.Join(folder, "quickstart"), words(t, program)
	build := exec.Command("go", "build", "-mod=mod", "-o", program, ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	run := func(environment string) (string, error) {
		command := exec.Command(program)
		command.Env = append(os.Environ(), "KVCACHE_LIBRARY="+environment)
		output, err := command.CombinedOutput()
		return strings.TrimSpace(string(output)), err
	}
	if output, err := run("/nowhere/libkvcache.so"); err == nil || !strings.Contains(output, "/nowhere/libkvcache.so: ") {
		t.Errorf("without the library: %v: %s", err, output)
	}
	path := must(LibraryPath())(t)
	if strings.Contains(path, "/") { // not a name for the system's loader: the library is put beside the program
		library := must(os.ReadFile(path))(t)
		check(t, os.WriteFile(filepath.Join(folder, filepath.Base(candidates("", "x/y")[0])), library, 0o600))
	}
	if output, err := run(""); err != nil || output != want {
		t.Errorf("%v: %s instead of %s", err, output, want)
	}
}

// words is what the program says that it prints.
func words(t *testing.T, program string) string {
	_, want, found := strings.Cut(program, "fmt.Println(len(users), stats.PagesUsed) // ")
	if !found {
		t.Fatal("the program does not say what it prints")
	}
	want, _, _ = strings.Cut(want, "\n")
	return want
}
