package kvcache

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A Go program that loads the library keeps its signal handlers and its threads' names; the library's threads go with
// their context. In a process of its own, where nothing was loaded before.
func TestProcessIsLeftAsItWas(t *testing.T) {
	if os.Getenv("KVCACHE_TEST_PROCESS") == "" {
		again := exec.Command(os.Args[0], "-test.run=^TestProcessIsLeftAsItWas$", "-test.v")
		again.Env = append(os.Environ(), "KVCACHE_TEST_PROCESS=1")
		if output, err := again.CombinedOutput(); err != nil || !strings.Contains(string(output), "--- PASS") {
			t.Errorf("%v: %s", err, output)
		}
		return
	}
	handlers, names := signalsOfProcess(t), threadNames(t)
	single := must(NewContext(ContextConfig{Threads: 3}))(t)
	const n, heads, dim = 64, 8, 64
	cache := newCache(t, func(c *Config) {
		c.Context, c.Layers = single, []Layer{{QHeads: heads, KVHeads: heads, HeadDim: dim}}
	})
	step := must(cache.Begin(background, Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{n}}))(t)
	x, out := F32(make([]float32, n*heads*dim), n, heads, dim), F32(make([]float32, n*heads*dim), n, heads, dim)
	check(t, step.Attend(background, 0, Attend{Q: x, K: x, V: x, Out: out}))
	check(t, step.End())
	workersBecome(t, 2)

	received := make(chan os.Signal, 1)
	signal.Notify(received, syscall.SIGUSR1)
	check(t, syscall.Kill(os.Getpid(), syscall.SIGUSR1))
	select {
	case <-received: // by a thread of Go: the library's block it
	case <-time.After(10 * time.Second):
		t.Error("a signal is lost")
	}
	cache.Close()
	single.Close()
	workersBecome(t, 0)
	if now := signalsOfProcess(t); now != handlers {
		t.Errorf("signals %s are now %s", handlers, now)
	}
	now := threadNames(t)
	for id, name := range names {
		if other, found := now[id]; found && other != name {
			t.Errorf("thread %s is now %s", name, other)
		}
	}
}

// signalsOfProcess is which signals are caught and which ignored.
func signalsOfProcess(t *testing.T) string {
	var found []string
	for _, line := range strings.Split(string(must(os.ReadFile("/proc/self/status"))(t)), "\n") {
		if strings.HasPrefix(line, "SigCgt") || strings.HasPrefix(line, "SigIgn") {
			found = append(found, line)
		}
	}
	return strings.Join(found, " ")
}

func threadNames(t *testing.T) map[string]string {
	names := map[string]string{}
	for _, task := range must(filepath.Glob("/proc/self/task/*"))(t) {
		if name, err := os.ReadFile(task + "/comm"); err == nil { // else it has ended
			names[filepath.Base(task)] = strings.TrimSpace(string(name))
		}
	}
	return names
}

// workersBecome waits: a thread names itself, and a joined one leaves /proc a moment later.
func workersBecome(t *testing.T, want int) {
	t.Helper()
	for wait := 0; ; wait++ {
		count := 0
		for _, name := range threadNames(t) {
			if strings.HasPrefix(name, "kvc-") {
				count++
			}
		}
		if count == want {
			return
		}
		if wait == 5000 {
			t.Fatalf("%d workers instead of %d", count, want)
		}
		time.Sleep(time.Millisecond)
	}
}
