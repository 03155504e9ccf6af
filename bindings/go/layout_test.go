package kvcache

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

type layoutOfStruct struct {
	name        string
	size, align uintptr
	fields      []layoutOfField
}

type layoutOfField struct {
	name         string
	offset, size uintptr
}

type layoutOfConstant struct {
	name  string
	value int64
}

// goLayout is in the words of layout.golden, which a C compiler has measured.
func goLayout() []string {
	var lines []string
	for _, s := range layoutOfStructs {
		lines = append(lines, fmt.Sprintf("struct %s %d align %d", s.name, s.size, s.align))
		for _, field := range s.fields {
			lines = append(lines, fmt.Sprintf("  %s %d +%d", field.name, field.offset, field.size))
		}
	}
	for _, c := range layoutOfConstants {
		lines = append(lines, fmt.Sprintf("constant %s %d", c.name, c.value))
	}
	return lines
}

// goldenLayout is what C has of kvcache.h: the golden file without what is of kvcache_backend.h.
func goldenLayout(t *testing.T) []string {
	text, err := os.ReadFile("../../tests/abi/layout.golden")
	if err != nil {
		t.Skip("not in the repository: ", err)
	}
	var lines []string
	backend := false
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if !strings.HasPrefix(line, "  ") {
			backend = strings.HasPrefix(line, "struct kvc_backend") || strings.HasPrefix(line, "constant KVC_BACKEND") ||
				strings.HasPrefix(line, "constant KVC_EFFORT")
		}
		if !backend {
			lines = append(lines, line)
		}
	}
	return lines
}

func TestLayoutIsC(t *testing.T) {
	want, got := map[string]bool{}, map[string]bool{}
	for _, line := range qualified(goldenLayout(t)) {
		want[line] = true
	}
	for _, line := range qualified(goLayout()) {
		got[line] = true
		if !want[line] {
			t.Errorf("Go has %q, C has not", line)
		}
	}
	for line := range want {
		if !got[line] {
			t.Errorf("C has %q, Go has not", line)
		}
	}
	if len(got) < 250 {
		t.Errorf("only %d lines were compared", len(got))
	}
}

// qualified puts the struct's name in front of each field.
func qualified(lines []string) []string {
	var found []string
	name := ""
	for _, line := range lines {
		if words := strings.Fields(line); words[0] == "struct" {
			name = words[1]
		}
		if strings.HasPrefix(line, "  ") {
			line = name + "." + strings.TrimSpace(line)
		}
		found = append(found, line)
	}
	return found
}

func TestGeneratedFilesAreUpToDate(t *testing.T) {
	const script = "../../scripts/generate_go.py"
	if _, err := os.Stat(script); err != nil {
		t.Skip("not in the repository: ", err)
	}
	if output, err := exec.Command("python3", script, "--check").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, output)
	}
}
