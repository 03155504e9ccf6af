// The runner of Go: makes the calls of conformance scripts through this package, and prints a transcript.
// bindings/conformance/README.md has the format of both.
//
//	go run ./conformance SCRIPT...
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kvcache.dev/kvcache"
)

// operations by name: each returns its results, "key=value".
var operations = map[string]func(*script) ([]string, error){}

func register(tables ...map[string]func(*script) ([]string, error)) {
	for _, table := range tables {
		for name, run := range table {
			operations[name] = run
		}
	}
}

// quiet is an operation without results.
func quiet(run func(*script) error) func(*script) ([]string, error) {
	return func(s *script) ([]string, error) { return nil, run(s) }
}

func main() {
	register(generatedOperations, settings, sequences, prefixes, events, saves, tiers, steps, transfers, peers, stateless)
	for _, path := range os.Args[1:] {
		if err := runScript(path); err != nil {
			fmt.Fprintln(os.Stderr, "runner:", err)
			os.Exit(1)
		}
	}
}

func runScript(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	fmt.Println("script", filepath.Base(path))
	s := newScript()
	defer s.close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for number := 1; lines.Scan(); number++ {
		if line := lines.Text(); line != "" && line[0] != '#' && line[0] != '=' {
			fmt.Println(number, s.run(line))
		}
	}
	return lines.Err()
}

// run makes a line's call, and says what came of it.
func (s *script) run(line string) (answer string) {
	defer func() {
		if problem := recover(); problem != nil { // a word that the format has not, an object that was never made
			answer = strings.ReplaceAll(fmt.Sprint("FAILED ", problem), "\n", " ")
		}
	}()
	name, rest, _ := strings.Cut(line, " ")
	s.words = map[string]string{}
	for _, word := range strings.Fields(rest) {
		key, value, _ := strings.Cut(word, "=")
		s.words[key] = value
	}
	operation, known := operations[strings.TrimPrefix(name, "?")]
	if !known {
		return "FAILED unknown operation " + name
	}
	results, err := operation(s)
	var e *kvcache.Error
	switch {
	case err == nil:
		return strings.Join(append([]string{"OK"}, results...), " ")
	case errors.As(err, &e):
		return fmt.Sprintf("%v index=%d required=%d available=%d group=%d", e.Status, e.Index, e.Required, e.Available, e.Group)
	}
	return "FAILED " + strings.ReplaceAll(err.Error(), "\n", " ")
}
