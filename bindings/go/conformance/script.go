package main

import (
	"fmt"
	"strconv"
	"strings"

	"kvcache.dev/kvcache"
)

// script is what a script has named, and the words of the line that runs.
type script struct {
	words    map[string]string
	contexts map[int]*kvcache.Context
	caches   map[int]*kvcache.Cache
	steps    map[int]*kvcache.Step
	graphs   map[int]*kvcache.Graph
	plans    map[int]*kvcache.Plan
	bound    map[int]kvcache.Seq
	tensors  map[string]kvcache.Tensor
	layers   []kvcache.Layer
	groups   []kvcache.Group

	job          *kvcache.LoadJob // of the last attach_pending
	transfers    map[int]*kvcache.Transfer
	descriptions map[int][]byte
}

func newScript() *script {
	return &script{contexts: map[int]*kvcache.Context{}, caches: map[int]*kvcache.Cache{}, steps: map[int]*kvcache.Step{},
		graphs: map[int]*kvcache.Graph{}, plans: map[int]*kvcache.Plan{}, bound: map[int]kvcache.Seq{}, tensors: map[string]kvcache.Tensor{},
		transfers: map[int]*kvcache.Transfer{}, descriptions: map[int][]byte{}}
}

func (s *script) close() {
	closeAll(s.steps)
	closeAll(s.plans)
	closeAll(s.caches)
	closeAll(s.contexts)
}

func closeAll[T interface{ Close() error }](objects map[int]T) {
	for _, object := range objects {
		if err := object.Close(); err != nil {
			panic(err)
		}
	}
}

// ---- Words

func (s *script) has(key string) bool { return s.words[key] != "" }

func (s *script) integer(key string) int { return s.integerOr(key, 0) }

func (s *script) integerOr(key string, absent int) int {
	if !s.has(key) {
		return absent
	}
	return parse(s.words[key], strconv.Atoi)
}

// index is absent where the script has none.
func (s *script) index(key string) (index kvcache.OptionalIndex) {
	if s.has(key) {
		index = kvcache.Index(s.integer(key))
	}
	return
}

func (s *script) number(key string) float64 {
	if !s.has(key) {
		return 0
	}
	return parse(s.words[key], float64Of)
}

func float64Of(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

func parse[T any](text string, how func(string) (T, error)) T {
	value, err := how(text)
	if err != nil {
		panic(err)
	}
	return value
}

// list is nil if there is none.
func list[T any](s *script, key string, how func(string) (T, error)) (found []T) {
	for _, item := range strings.Split(s.words[key], ",") {
		if item != "" {
			found = append(found, parse(item, how))
		}
	}
	return found
}

func int32Of(text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	return int32(n), err
}

func int64Of(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

func float32Of(text string) (float32, error) {
	n, err := strconv.ParseFloat(text, 32)
	return float32(n), err
}

// choice is the meaning of a word; that of an absent one is the zero value.
func choice[T any](s *script, key string, meanings map[string]T) (found T) {
	if s.has(key) {
		known := false
		if found, known = meanings[s.words[key]]; !known {
			panic(fmt.Sprintf("unknown %s %s", key, s.words[key]))
		}
	}
	return found
}

// ---- Objects

func named[T any](s *script, kind string, objects map[int]*T) *T {
	object, made := objects[s.integer(kind)]
	if !made {
		panic(fmt.Sprintf("no %s %d", kind, s.integer(kind)))
	}
	return object
}

func (s *script) context() *kvcache.Context { return named(s, "context", s.contexts) }
func (s *script) cache() *kvcache.Cache     { return named(s, "cache", s.caches) }
func (s *script) step() *kvcache.Step       { return named(s, "step", s.steps) }
func (s *script) graph() *kvcache.Graph     { return named(s, "graph", s.graphs) }
func (s *script) plan() *kvcache.Plan       { return named(s, "plan", s.plans) }

func (s *script) transfer() *kvcache.Transfer { return named(s, "transfer", s.transfers) }

func (s *script) sequences(key string) (found []kvcache.Seq) {
	for _, ordinal := range list(s, key, strconv.Atoi) {
		id, bound := s.bound[ordinal]
		switch {
		case ordinal == -1:
			id = 0
		case !bound:
			id = kvcache.Seq(1<<60 + ordinal)
		}
		found = append(found, id)
	}
	return found
}

func (s *script) sequence() kvcache.Seq { return s.sequences("seq")[0] }

func (s *script) bind(ids []kvcache.Seq) {
	for i, ordinal := range list(s, "seqs", strconv.Atoi) {
		s.bound[ordinal] = ids[i]
	}
}

// ---- Results

func result(key string, value any) string { return fmt.Sprintf("%s=%v", key, value) }

func integers[T int32 | int64 | int](key string, values []T) string {
	text := make([]string, len(values))
	for i, value := range values {
		text[i] = strconv.FormatInt(int64(value), 10)
	}
	return key + "=" + strings.Join(text, ",")
}
