package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"unicode/utf8"

	"kvcache.dev/examples/gemma/model"
	"kvcache.dev/kvcache"
)

const (
	defaultTokens = 16      // of an answer, as in OpenAI's interface
	mostBytes     = 8 << 20 // of a request
)

// server answers HTTP requests with what the engine computes.
type server struct {
	engine    *engine
	tokenizer *model.Tokenizer // nil: prompts are token ids
	name      string           // of the model
	capacity  int              // tokens of a prompt and its answer
	ended     <-chan struct{}  // closed when the engine has ended
	number    atomic.Int64     // of the last answer
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/completions", s.completions)
	mux.HandleFunc("POST /tokenize", s.tokenize)
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"object": "list", "data": []any{map[string]any{"id": s.name, "object": "model"}}})
	})
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /cache", func(w http.ResponseWriter, _ *http.Request) {
		text, err := s.engine.cache.Describe()
		if err != nil {
			refuse(w, http.StatusInternalServerError, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, text)
	})
	return mux
}

// completion is the body of a request. What would change the answer and is not supported is refused. Other members are
// ignored.
type completion struct {
	Prompt        json.RawMessage `json:"prompt"` // a text, or token ids
	MaxTokens     *int            `json:"max_tokens"`
	Stream        bool            `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	IgnoreEOS   bool            `json:"ignore_eos"`
	Temperature float64         `json:"temperature"`
	N           *int            `json:"n"`
	BestOf      *int            `json:"best_of"`
	Echo        bool            `json:"echo"`
	Stop        json.RawMessage `json:"stop"`
	LogProbs    json.RawMessage `json:"logprobs"`
	LogitBias   json.RawMessage `json:"logit_bias"`
	Suffix      string          `json:"suffix"`
}

// request checks a body and makes the engine's request of it.
func (s *server) request(ctx context.Context, body *completion) (*request, error) {
	given := func(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }
	for name, unsupported := range map[string]bool{
		"n": body.N != nil && *body.N != 1, "best_of": body.BestOf != nil && *body.BestOf != 1, "echo": body.Echo, "stop": given(body.Stop), "logprobs": given(body.LogProbs), "logit_bias": given(body.LogitBias),
		"suffix": body.Suffix != "", "temperature": body.Temperature != 0} {
		if unsupported {
			return nil, fmt.Errorf("%s is not supported: answers are greedy, and there is one for each prompt", name)
		}
	}
	r := &request{ctx: ctx, most: defaultTokens, ignoreEnd: body.IgnoreEOS, found: -1}
	if body.MaxTokens != nil {
		r.most = *body.MaxTokens
	}
	var text string
	if json.Unmarshal(body.Prompt, &text) == nil && given(body.Prompt) {
		if s.tokenizer == nil {
			return nil, model.ErrNoKinds
		}
		r.tokens = s.tokenizer.Encode(text)
	} else if json.Unmarshal(body.Prompt, &r.tokens) != nil || len(r.tokens) == 0 {
		return nil, errors.New("prompt must be a text or a list of token ids that is not empty")
	}
	for i, token := range r.tokens {
		if token < 0 || int(token) >= s.engine.model.Vocabulary {
			return nil, fmt.Errorf("prompt[%d] is %d: token ids are 0 to %d", i, token, s.engine.model.Vocabulary-1)
		}
	}
	r.prompt = len(r.tokens)
	if r.most < 1 || r.most > s.capacity-r.prompt {
		return nil, fmt.Errorf("max_tokens is %d, and the prompt has %d tokens: an answer has at least 1 token, "+
			"and both together at most %d", r.most, r.prompt, s.capacity)
	}
	r.answer = make(chan int32, r.most)
	return r, nil
}

func (s *server) completions(w http.ResponseWriter, asked *http.Request) {
	var body completion
	if !read(w, asked, &body) {
		return
	}
	r, err := s.request(asked.Context(), &body)
	if err != nil {
		refuse(w, http.StatusBadRequest, err)
		return
	}
	select {
	case s.engine.arrivals <- r:
	default:
		err := fmt.Errorf("%d requests have arrived and were not looked at yet", cap(s.engine.arrivals))
		refuse(w, http.StatusTooManyRequests, err)
		return
	}
	a := &answer{server: s, request: r, id: fmt.Sprintf("cmpl-%d", s.number.Add(1)), finish: "length"}
	if body.Stream {
		a.stream(w, body.StreamOptions.IncludeUsage)
		return
	}
	for token, more := a.next(); more; token, more = a.next() {
		a.add(token)
	}
	if a.err != nil {
		refuse(w, statusOf(a.err), a.err)
		return
	}
	object := a.object(a.text(true), a.tokens, a.finish)
	object["usage"] = a.usage()
	reply(w, http.StatusOK, object)
}

// answer is what a client has got of its answer.
type answer struct {
	*server
	request *request
	id      string
	tokens  []int32
	bytes   []byte // of tokens whose text was not given yet
	finish  string
	err     error
}

// next is the next token. Without one, err is nil if the answer has come to its end.
func (a *answer) next() (token int32, more bool) {
	select {
	case token, more = <-a.request.answer:
		if !more {
			a.err = a.request.err
		}
	case <-a.request.ctx.Done():
		a.err = a.request.ctx.Err()
	case <-a.ended:
		a.err = errors.New("the engine has ended")
	}
	return token, more
}

func (a *answer) add(token int32) {
	a.tokens, a.bytes = append(a.tokens, token), append(a.bytes, a.engine.model.Piece(token)...)
	if !a.request.ignoreEnd && a.engine.isEnd(token) {
		a.finish = "stop"
	}
}

// text is the text that was not given yet. The last bytes of it wait as long as they are a part of a character, unless they
// are all.
func (a *answer) text(all bool) string {
	end := len(a.bytes)
	for back := 1; !all && back <= min(utf8.UTFMax, len(a.bytes)); back++ {
		if last := a.bytes[len(a.bytes)-back:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				end -= back
			}
			break
		}
	}
	text := string(a.bytes[:end])
	a.bytes = a.bytes[end:]
	return text
}

// stream gives each token when it is known, as server-sent events.
func (a *answer) stream(w http.ResponseWriter, usage bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	control := http.NewResponseController(w)
	send := func(object any) {
		data, _ := json.Marshal(object)
		fmt.Fprintf(w, "data: %s\n\n", data) // a client that went away ends the request's context
		_ = control.Flush()
	}
	_ = control.Flush()
	for token, more := a.next(); more; token, more = a.next() {
		a.add(token)
		send(a.object(a.text(false), []int32{token}, nil))
	}
	if a.err != nil {
		send(failure(statusOf(a.err), a.err))
		return
	}
	send(a.object(a.text(true), []int32{}, a.finish))
	if usage {
		last := a.object("", nil, nil)
		last["choices"], last["usage"] = []any{}, a.usage()
		send(last)
	}
	fmt.Fprint(w, "data: [DONE]\n\n")
}

func (a *answer) object(text string, tokens []int32, finish any) map[string]any {
	return map[string]any{"id": a.id, "object": "text_completion", "model": a.name, "choices": []any{
		map[string]any{"index": 0, "text": text, "token_ids": tokens, "finish_reason": finish, "logprobs": nil}}}
}

func (a *answer) usage() any {
	return map[string]any{"prompt_tokens": a.request.prompt, "completion_tokens": len(a.tokens),
		"total_tokens":          a.request.prompt + len(a.tokens),
		"prompt_tokens_details": map[string]any{"cached_tokens": a.request.found}}
}

// metrics is counts of the engine and the cache, in Prometheus's format.
func (s *server) metrics(w http.ResponseWriter, _ *http.Request) {
	stats, err := s.engine.cache.Stats(kvcache.WholeCache)
	if err != nil {
		refuse(w, http.StatusInternalServerError, err)
		return
	}
	var traffic kvcache.TierTraffic
	if s.engine.tier {
		if traffic, err = s.engine.cache.TierTraffic(); err != nil {
			refuse(w, http.StatusInternalServerError, err)
			return
		}
	}
	c := &s.engine.counts
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	for _, line := range []struct {
		name, kind string
		value      int64
	}{{"requests_running", "gauge", c.running.Load()}, {"requests_waiting", "gauge", c.waiting.Load()},
		{"requests_cancelled_total", "counter", c.cancelled.Load()}, {"preemptions_total", "counter", c.preempted.Load()},
		{"steps_total", "counter", c.steps.Load()}, {"tokens_computed_total", "counter", c.tokens.Load()},
		{"prefix_tokens_found_total", "counter", stats.PrefixTokens}, {"sequences", "gauge", int64(stats.Sequences)},
		{"pages", "gauge", stats.PagesTotal},
		{"pages_free", "gauge", stats.PagesFree}, {"pages_only_remembered", "gauge", stats.PagesIdle},
		{"pages_shared", "gauge", stats.PagesShared}, {"pages_evicted_total", "counter", stats.PagesEvicted},
		{"tier_pages_waiting", "gauge", traffic.PagesWaiting}, {"tier_pages_stored_total", "counter", traffic.PagesStored},
		{"tier_pages_loaded_total", "counter", traffic.PagesLoaded}} {
		fmt.Fprintf(w, "# TYPE kvcache_%s %s\nkvcache_%s %d\n", line.name, line.kind, line.name, line.value)
	}
}

// tokenize gives the tokens of a text.
func (s *server) tokenize(w http.ResponseWriter, asked *http.Request) {
	var body struct {
		Prompt string `json:"prompt"`
	}
	switch {
	case !read(w, asked, &body):
	case s.tokenizer == nil:
		refuse(w, http.StatusBadRequest, model.ErrNoKinds)
	default:
		tokens := s.tokenizer.Encode(body.Prompt)
		reply(w, http.StatusOK, map[string]any{"tokens": tokens, "count": len(tokens)})
	}
}

// read reads the body of a request, or refuses it.
func read(w http.ResponseWriter, asked *http.Request, body any) bool {
	err := json.NewDecoder(http.MaxBytesReader(w, asked.Body, mostBytes)).Decode(body)
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the body is no JSON of a request: %w", err))
	}
	return err == nil
}

// statusOf is the status for an answer that has ended early: a request that does not fit, or a fault.
func statusOf(err error) int {
	if kvcache.IsCapacity(err) {
		return http.StatusServiceUnavailable
	}
	return http.StatusInternalServerError
}

func failure(status int, err error) any {
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	return map[string]any{"error": map[string]any{"message": err.Error(), "type": kind, "code": status}}
}

func refuse(w http.ResponseWriter, status int, err error) { reply(w, status, failure(status, err)) }

func reply(w http.ResponseWriter, status int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(object)
}
