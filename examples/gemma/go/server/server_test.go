package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kvcache.dev/examples/gemma/model"
	"kvcache.dev/kvcache"
)

const prefixTokens = 70 // of the prompts that share one

// question is a prompt, and the answer of a run that computes nothing else.
type question struct{ prompt, answer []int32 }

// questions are prompts of which many share a prefix, with the longest answers that a test needs.
func questions(t *testing.T, m *model.Model, count, tokens int) (all []question) {
	t.Helper()
	random := rand.New(rand.NewPCG(11, 13))
	draw := func(n int) (tokens []int32) {
		for range n {
			tokens = append(tokens, random.Int32N(vocabulary))
		}
		return tokens
	}
	prefixes := [][]int32{nil, draw(prefixTokens), draw(prefixTokens)}
	for i := range count {
		prompt := slices.Concat(prefixes[i%len(prefixes)], draw(1+random.IntN(60)))
		all = append(all, question{prompt, alone(t, m, prompt, tokens)})
	}
	return all
}

// alone computes an answer with a cache of its own: the prompt in one step, then token by token.
func alone(t *testing.T, m *model.Model, prompt []int32, most int) (answer []int32) {
	t.Helper()
	config := m.Config()
	config.CapacityTokens, config.MaxSequences, config.Deterministic = int64(len(prompt)+most), 1, true
	cache, err := kvcache.New(config)
	check(t, err)
	defer cache.Close()
	sequence, err := cache.Add()
	check(t, err)
	for tokens := prompt; len(answer) < most; tokens = answer[len(answer)-1:] {
		batch := kvcache.Batch{Sequences: []kvcache.Seq{sequence}, AppendLengths: []int32{int32(len(tokens))}}
		step, err := cache.Begin(t.Context(), batch)
		check(t, err)
		hidden, err := m.Forward(t.Context(), step, tokens)
		check(t, err)
		check(t, step.End())
		answer = append(answer, m.Predict(m.Rows(hidden, int32(len(tokens)-1)))...)
	}
	return answer
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running is a server in this process, which the test looks into when it has ended.
type running struct {
	url   string
	stop  context.CancelFunc
	ended chan error
}

func start(t *testing.T, o options) *running {
	t.Helper()
	stop, cancel := context.WithCancel(context.Background())
	r := &running{stop: cancel, ended: make(chan error, 1)}
	started := make(chan net.Addr, 1)
	o.address = "127.0.0.1:0"
	go func() { r.ended <- serve(stop, o, func(address net.Addr) { started <- address }) }()
	select {
	case address := <-started:
		r.url = fmt.Sprintf("http://%v", address)
	case err := <-r.ended:
		t.Fatal(err)
	}
	return r
}

func (r *running) end(t *testing.T) {
	t.Helper()
	r.stop()
	check(t, <-r.ended)
}

// reply is the body of an answer, or of an event of a stream.
type replied struct {
	Choices []struct {
		Text   string  `json:"text"`
		Tokens []int32 `json:"token_ids"`
		Finish string  `json:"finish_reason"`
	} `json:"choices"`
	Usage struct {
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Error struct {
		Message string `json:"message"`
	} `json:"error"`
}

// post sends a body. The status is 0 when there is an error.
func post(ctx context.Context, url string, body any) (status int, answer io.ReadCloser, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	asked, err := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", bytes.NewReader(data))
	if err != nil {
		return 0, nil, err
	}
	got, err := http.DefaultClient.Do(asked)
	if err != nil {
		return 0, nil, err
	}
	return got.StatusCode, got.Body, nil
}

// ask gets a whole answer, streamed or not. A client that is impatient goes away after so many tokens; -1 = it is not.
func ask(url string, prompt []int32, most int, stream bool, patience int) (tokens []int32, cached int, err error) {
	ctx, leave := context.WithCancel(context.Background())
	defer leave()
	if patience == 0 {
		time.AfterFunc(time.Duration(rand.IntN(20))*time.Millisecond, leave)
	}
	status, body, err := post(ctx, url, map[string]any{"prompt": prompt, "max_tokens": most, "ignore_eos": true,
		"stream": stream, "stream_options": map[string]any{"include_usage": true}})
	if err != nil {
		return nil, 0, err
	}
	defer body.Close()
	read := func(data []byte) error {
		var part replied
		if err := json.Unmarshal(data, &part); err != nil {
			return fmt.Errorf("%q: %w", data, err)
		}
		if status != http.StatusOK || part.Error.Message != "" {
			return fmt.Errorf("status %d: %s", status, part.Error.Message)
		}
		for _, choice := range part.Choices {
			tokens = append(tokens, choice.Tokens...)
		}
		cached = part.Usage.Details.Cached
		return nil
	}
	if !stream {
		data, err := io.ReadAll(body)
		if err == nil {
			err = read(data)
		}
		return tokens, cached, err
	}
	for lines := bufio.NewScanner(body); lines.Scan(); {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if data == "[DONE]" {
			return tokens, cached, nil
		}
		if !isData {
			continue
		}
		if err := read([]byte(data)); err != nil {
			return tokens, cached, err
		}
		if patience >= 0 && len(tokens) >= patience {
			return tokens, cached, errImpatient
		}
	}
	return tokens, cached, errors.New("the stream has ended before its end")
}

var errImpatient = errors.New("the client went away")

// load lets 64 clients send requests at once, some of which are cancelled. Every other answer must be the expected one.
func load(t *testing.T, url string, all []question, each int) (cached, cancelled int64) {
	t.Helper()
	var found, gone atomic.Int64
	var clients sync.WaitGroup
	for client := range 64 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(3, uint64(client)))
			for range each {
				q := all[random.IntN(len(all))]
				most, patience, stream := 1+random.IntN(len(q.answer)), -1, random.IntN(2) == 0
				if random.IntN(4) == 0 {
					patience, stream = random.IntN(most), true
				}
				tokens, known, err := ask(url, q.prompt, most, stream, patience)
				switch {
				case patience >= 0 && err != nil:
					gone.Add(1)
					if !slices.Equal(tokens, q.answer[:len(tokens)]) {
						t.Errorf("cancelled: got %v, not the begin of %v", tokens, q.answer)
					}
				case err != nil:
					t.Errorf("a request was lost: %v", err)
				case !slices.Equal(tokens, q.answer[:most]):
					t.Errorf("got %v, not %v", tokens, q.answer[:most])
				}
				found.Add(int64(known))
			}
		})
	}
	clients.Wait()
	return found.Load(), gone.Load()
}

// metric is a line of /metrics.
func metric(t *testing.T, url, name string) (value int64) {
	t.Helper()
	got, err := http.Get(url + "/metrics")
	check(t, err)
	defer got.Body.Close()
	for lines := bufio.NewScanner(got.Body); lines.Scan(); {
		if n, _ := fmt.Sscanf(lines.Text(), "kvcache_"+name+" %d", &value); n == 1 {
			return value
		}
	}
	t.Fatalf("no %s in /metrics", name)
	return 0
}

// checkNothingIsHeld waits until the server has seen that its clients went away. Then the prefix index alone may have pages.
func checkNothingIsHeld(t *testing.T, url string) {
	t.Helper()
	for metric(t, url, "requests_running")+metric(t, url, "requests_waiting") > 0 {
		time.Sleep(time.Millisecond)
	}
	total, free, idle := metric(t, url, "pages"), metric(t, url, "pages_free"), metric(t, url, "pages_only_remembered")
	if free+idle != total || metric(t, url, "sequences") != 0 {
		t.Errorf("of %d pages %d are free and %d only remembered: some were lost", total, free, idle)
	}
}

func open(t *testing.T) (string, *model.Model) {
	t.Helper()
	path := tinyModel(t)
	m, err := model.Open(path)
	check(t, err)
	return path, m
}

func TestManyClientsInASmallPoolAndAfterARestart(t *testing.T) {
	path, m := open(t)
	all := questions(t, m, 30, 40)
	o := options{file: path, tier: t.TempDir(), capacity: 640, sequences: 24, stepTokens: 48, patience: time.Minute}
	server := start(t, o)
	cached, cancelled := load(t, server.url, all, 5)
	seen, preempted := metric(t, server.url, "requests_cancelled_total"), metric(t, server.url, "preemptions_total")
	if cached == 0 || cancelled == 0 || seen == 0 || preempted == 0 {
		t.Errorf("%d tokens found, %d answers cancelled, %d seen by the server, %d preemptions: there must be some of each", cached,
			cancelled, seen, preempted)
	}
	checkNothingIsHeld(t, server.url)
	server.end(t)

	server = start(t, o)
	for _, q := range all {
		if len(q.prompt) <= prefixTokens {
			continue
		}
		tokens, cached, err := ask(server.url, q.prompt, len(q.answer), true, -1)
		check(t, err)
		if !slices.Equal(tokens, q.answer) || cached < prefixTokens/pageSize*pageSize {
			t.Errorf("after the restart: %v with %d tokens found, not %v", tokens, cached, q.answer)
		}
		break
	}
	load(t, server.url, all, 1)
	checkNothingIsHeld(t, server.url)
	server.end(t)
}

// asProgram makes the test's binary the server itself, for tests that kill it.
const asProgram = "KVCACHE_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func startProgram(t *testing.T, arguments ...string) (*exec.Cmd, string) {
	t.Helper()
	program := exec.Command(os.Args[0], append([]string{"--listen", "127.0.0.1:0"}, arguments...)...)
	program.Env, program.Stderr = append(os.Environ(), asProgram+"=1"), os.Stderr
	output, err := program.StdoutPipe()
	check(t, err)
	check(t, program.Start())
	t.Cleanup(func() { _ = program.Process.Kill() })
	line, err := bufio.NewReader(output).ReadString('\n')
	check(t, err)
	return program, strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}

func TestAKilledServerFindsItsPrefixesAgain(t *testing.T) {
	path, m := open(t)
	all := slices.DeleteFunc(questions(t, m, 12, 60), func(q question) bool { return len(q.prompt) <= prefixTokens })
	arguments := []string{"--tier", t.TempDir(), "--capacity-tokens", "2048", path}
	program, url := startProgram(t, arguments...)
	for _, q := range all[:2] { // one of each prefix
		tokens, _, err := ask(url, q.prompt, 60, false, -1)
		check(t, err)
		if !slices.Equal(tokens, q.answer) {
			t.Errorf("got %v, not %v", tokens, q.answer)
		}
	}
	for metric(t, url, "tier_pages_waiting") > 0 {
		time.Sleep(time.Millisecond)
	}
	lost := make(chan error, len(all))
	for _, q := range all { // these are computed when it is killed
		go func() {
			_, _, err := ask(url, q.prompt, 2048-len(q.prompt), true, -1)
			lost <- err
		}()
	}
	for metric(t, url, "requests_running") == 0 {
		time.Sleep(time.Millisecond)
	}
	check(t, program.Process.Kill()) // SIGKILL
	_ = program.Wait()
	for range all {
		if <-lost == nil {
			t.Error("an answer was complete before the server was killed")
		}
	}
	program, url = startProgram(t, arguments...)
	for _, q := range all {
		tokens, cached, err := ask(url, q.prompt, 60, true, -1)
		check(t, err)
		if !slices.Equal(tokens, q.answer) || cached < prefixTokens/pageSize*pageSize {
			t.Errorf("after SIGKILL: %v with %d tokens found, not %v", tokens, cached, q.answer)
		}
	}
	check(t, program.Process.Signal(syscall.SIGTERM))
	if err := program.Wait(); err != nil {
		t.Error("SIGTERM: ", err)
	}
}

func TestTheEndCompletesAnswersAsLongAsItsPatience(t *testing.T) {
	path, m := open(t)
	q := questions(t, m, 1, 200)[0]
	for _, patience := range []time.Duration{time.Minute, 0} {
		server := start(t, options{file: path, capacity: 4096, sequences: 4, stepTokens: 16, patience: patience})
		ctx, leave := context.WithCancel(context.Background())
		most := 200
		if patience == 0 {
			most = 4000 // it is not complete when the server ends
		}
		_, body, err := post(ctx, server.url, map[string]any{"prompt": q.prompt, "max_tokens": most, "ignore_eos": true,
			"stream": true})
		check(t, err)
		lines := bufio.NewScanner(body)
		for range 3 {
			lines.Scan() // it has begun
		}
		server.stop()
		events := 0
		done := false
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				events++
			}
			done = done || lines.Text() == "data: [DONE]"
		}
		if whole := patience > 0; done != whole || whole && events < 198 {
			t.Errorf("patience %v: %d events, complete: %v", patience, events, done)
		}
		check(t, <-server.ended)
		leave()
		if _, _, err := post(context.Background(), server.url, map[string]any{"prompt": []int{1}}); err == nil {
			t.Error("a server that has ended answers")
		}
	}
}

func TestTheFormOfAnswers(t *testing.T) {
	path, m := open(t)
	server := start(t, options{file: path, capacity: 256, sequences: 4, stepTokens: 16, patience: time.Minute})
	var q question
	for number := 0; slices.Index(q.answer, endToken) < 1; number++ { // one that ends after its first token, and before its last
		q.prompt = []int32{int32(number)}
		q.answer = alone(t, m, q.prompt, 100)
	}
	q.answer = q.answer[:slices.Index(q.answer, endToken)+1]
	text := ""
	for _, token := range q.answer {
		text += string(rune('A' + token))
	}
	get := func(most int) (part replied) {
		status, body, err := post(t.Context(), server.url, map[string]any{"prompt": q.prompt, "max_tokens": most,
			"temperature": 0})
		check(t, err)
		defer body.Close()
		check(t, json.NewDecoder(body).Decode(&part))
		if status != http.StatusOK {
			t.Fatal(part.Error.Message)
		}
		return part
	}
	whole := get(100)
	if c := whole.Choices[0]; c.Finish != "stop" || c.Text != text || !slices.Equal(c.Tokens, q.answer) ||
		whole.Usage.Completion != len(q.answer) {
		t.Errorf("got %+v, not %q", whole, text)
	}
	if c := get(1).Choices[0]; c.Finish != "length" || c.Text != text[:1] {
		t.Errorf("got %+v, not %q", c, text[:1])
	}
	for _, path := range []string{"/health", "/v1/models", "/cache"} {
		got, err := http.Get(server.url + path)
		check(t, err)
		data, err := io.ReadAll(got.Body)
		check(t, err)
		if got.StatusCode != http.StatusOK || path != "/health" && !json.Valid(data) {
			t.Errorf("%s: status %d, %q", path, got.StatusCode, data)
		}
	}
	server.end(t)
}

func TestWhatIsRefused(t *testing.T) {
	path, _ := open(t)
	server := start(t, options{file: path, capacity: 64, sequences: 4, stepTokens: 16, patience: time.Minute})
	for words, body := range map[string]any{
		"no JSON": "text", "prompt must be": map[string]any{}, "not empty": map[string]any{"prompt": []int{}},
		"vocabulary.kinds": map[string]any{"prompt": "Why?"}, "prompt[1] is 61": map[string]any{"prompt": []int{0, 61}},
		"prompt[0] is -1":                    map[string]any{"prompt": []int{-1}},
		"max_tokens is 0":                    map[string]any{"prompt": []int{1}, "max_tokens": 0},
		"max_tokens is 64":                   map[string]any{"prompt": []int{1}, "max_tokens": 64},
		"max_tokens is 9223372036854775807":  map[string]any{"prompt": []int{1}, "max_tokens": 9223372036854775807},
		"temperature":                        map[string]any{"prompt": []int{1}, "temperature": 0.5},
		"stop is not supported":              map[string]any{"prompt": []int{1}, "stop": "x"},
		"n is not supported":                 map[string]any{"prompt": []int{1}, "n": 2},
		"prompt must be a text or a list of": map[string]any{"prompt": []any{[]int{1}, []int{2}}},
	} {
		status, answer, err := post(t.Context(), server.url, body)
		check(t, err)
		var got replied
		check(t, json.NewDecoder(answer).Decode(&got))
		answer.Close()
		if status != http.StatusBadRequest || !strings.Contains(got.Error.Message, words) {
			t.Errorf("%v: status %d, %q", body, status, got.Error.Message)
		}
	}
	checkNothingIsHeld(t, server.url)
	server.end(t)
}
