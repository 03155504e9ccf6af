// A server of Gemma 3 270M: HTTP requests in the form of OpenAI's completions. Those of all clients are computed together.
//
//	python examples/gemma/generate.py --export gemma.safetensors
//	cd examples/gemma/go && KVCACHE_LIBRARY=... go run ./server --tier DIRECTORY gemma.safetensors
//	curl localhost:8080/v1/completions -d '{"prompt": "The heart is", "max_tokens": 24}'
//
// scheduler.go decides what is computed next, and http.go talks to clients. ../../README.md says what to look at.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"kvcache.dev/examples/gemma/model"
	"kvcache.dev/kvcache"
)

const pageSize = 16

type options struct {
	file, address, tier string
	capacity            int           // tokens that the cache holds at once
	sequences           int           // requests that are computed at once
	stepTokens          int           // of one step
	patience            time.Duration // for answers that are not complete at the end
}

func main() {
	var o options
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: server [option ...] FILE.safetensors")
		flag.PrintDefaults()
	}
	flag.StringVar(&o.address, "listen", "127.0.0.1:8080", "address; port 0 is any free one")
	flag.StringVar(&o.tier, "tier", "", "directory that keeps keys and values, so that a later start finds them")
	flag.IntVar(&o.capacity, "capacity-tokens", 16384, "tokens that the cache holds at once")
	flag.IntVar(&o.sequences, "sequences", 32, "requests that are computed at once")
	flag.IntVar(&o.stepTokens, "step-tokens", 256, "tokens of one step: longer prompts take several")
	flag.DurationVar(&o.patience, "patience", 30*time.Second, "how long the end waits for answers, after SIGTERM or SIGINT")
	flag.Parse()
	if o.file = flag.Arg(0); flag.NArg() != 1 || o.capacity < pageSize || o.sequences < 1 || o.stepTokens < o.sequences {
		fmt.Fprintln(os.Stderr, "server: give one file, at least 16 capacity tokens, 1 sequence, and a step token for each sequence")
		os.Exit(2)
	}
	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	if err := serve(stop, o, func(address net.Addr) { fmt.Printf("listening on http://%v\n", address) }); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// serve answers requests until stop is done. Then it takes no more, completes those that it has, and waits until the tier
// has their pages. An error of the engine ends it too.
func serve(stop context.Context, o options, started func(net.Addr)) error {
	m, err := model.Open(o.file)
	if err != nil {
		return err
	}
	e, err := newEngine(m, o)
	if err != nil {
		return err
	}
	defer e.cache.Close()
	ended := make(chan struct{}) // closed when the engine has ended
	s := &server{engine: e, name: "gemma-3-270m", capacity: o.capacity, ended: ended}
	if s.tokenizer, err = m.Tokenizer(); err != nil && err != model.ErrNoKinds {
		return err
	}
	listener, err := net.Listen("tcp", o.address)
	if err != nil {
		return err
	}
	started(listener.Addr())

	clients, dropClients := context.WithCancel(context.Background())
	defer dropClients()
	web := &http.Server{Handler: s.handler(), BaseContext: func(net.Listener) context.Context { return clients },
		ReadHeaderTimeout: 10 * time.Second}
	go web.Serve(listener) // it returns when it is shut down
	noMore, endEngine := context.WithCancel(context.Background())
	defer endEngine()
	var failed error
	go func() {
		defer close(ended)
		failed = e.run(noMore)
	}()

	select {
	case <-stop.Done():
	case <-ended:
	}
	patience, cancel := context.WithTimeout(context.Background(), o.patience)
	defer cancel()
	if web.Shutdown(patience) != nil { // some answers take longer
		dropClients()
		web.Close()
	}
	endEngine()
	<-ended
	return errors.Join(failed, e.settle())
}

func newEngine(m *model.Model, o options) (*engine, error) {
	config := m.Config()
	config.PageSize, config.CapacityTokens = pageSize, int64(o.capacity)
	config.MaxSequences, config.MaxBatchTokens = o.sequences, o.stepTokens
	config.PrefixIndex = true
	config.Deterministic = true // an answer does not depend on what else is computed
	if o.tier != "" {
		config.Fingerprint = m.File.Fingerprint()
	}
	ends := m.File.IDs("stop_ids")
	if m.File.Err() != nil {
		return nil, fmt.Errorf("%s: %w", o.file, m.File.Err())
	}
	cache, err := kvcache.New(config)
	if err == nil && o.tier != "" {
		err = cache.AddDiskTier(o.tier, kvcache.DiskTierOptions{})
	}
	if err != nil {
		cache.Close()
		return nil, err
	}
	return &engine{model: m, cache: cache, stepTokens: o.stepTokens, tier: o.tier != "", ends: ends,
		arrivals: make(chan *request, 1024)}, nil
}

func (e *engine) isEnd(token int32) bool { return slices.Contains(e.ends, token) }

// settle waits until the tier has what was published.
func (e *engine) settle() error {
	for e.tier {
		traffic, err := e.cache.TierTraffic()
		if err != nil || traffic.PagesWaiting == 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
