package kvcache

import (
	"errors"
	"math"
	"math/rand"
	"slices"
	"sync"
	"testing"
)

func remembering(c *Config) { c.PrefixIndex = true }

func fourPages(c *Config) { c.PrefixIndex, c.CapacityTokens = true, 16 }

// tokensFrom is n numbers from first on.
func tokensFrom(first int32, n int) []int32 {
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = first + int32(i)
	}
	return tokens
}

// publish makes a sequence with the query's tokens, publishes and removes it, and returns what it held and its pages.
func publish(t testing.TB, cache *Cache, query PrefixQuery, options PrefixOptions) (history, []int32) {
	t.Helper()
	sequence := must(cache.Add())(t)
	x := randomTokens(rand.New(rand.NewSource(70)), len(query.Tokens))
	step(t, cache, sequence, x)
	must(cache.PublishPrefix(sequence, query, options))(t)
	pages := must(cache.Pages(sequence, 0))(t)
	check(t, cache.Remove(sequence))
	return history{}.with(x), pages
}

// found is how many of the tokens the index has.
func found(t testing.TB, cache *Cache, tokens []int32) int64 {
	t.Helper()
	return must(cache.MatchPrefix(PrefixQuery{Tokens: tokens, AllowAll: true}))(t).Tokens
}

func TestAttachFindsWhatWasPublished(t *testing.T) {
	cache, prompt := newCache(t, remembering), tokensFrom(100, 11)
	sequence, x := must(cache.Add())(t), randomTokens(rand.New(rand.NewSource(71)), 10)
	step(t, cache, sequence, x)
	done := must(cache.PublishPrefix(sequence, PrefixQuery{Tokens: prompt[:10]}, PrefixOptions{}))(t)
	if done != (PrefixPublished{KnownTokens: 10, PagesAdded: 3}) {
		t.Errorf("%+v", done)
	}
	pages := must(cache.Pages(sequence, 0))(t)
	check(t, cache.Remove(sequence))
	s := must(cache.Stats(WholeCache))(t)
	if s.Sequences != 0 || s.PagesUsed != 3 || s.PagesPublished != 3 || s.PagesIdle != 3 {
		t.Errorf("%+v", s)
	}

	query, want := PrefixQuery{Tokens: prompt}, PrefixHit{Tokens: 10, CopiedTokens: 2, KnownTokens: 10, LimitedBy: -1, LoadTokens: 10}
	want.TokenNs = must(cache.MatchPrefix(query))(t).TokenNs // as measured
	if hit := must(cache.MatchPrefix(query))(t); hit != want || hit.TokenNs == 0 {
		t.Errorf("%+v", hit)
	}
	attached, hit, err := cache.AttachPrefix(query)
	if err != nil || hit != want || must(cache.Length(attached))(t) != 10 {
		t.Fatalf("%+v %v", hit, err)
	}
	// Whole pages are the same, the part of one is a copy.
	if its := must(cache.Pages(attached, 0))(t); !slices.Equal(its[:2], pages[:2]) || its[2] == pages[2] {
		t.Error(its, pages)
	}
	if k := must(cache.Export(attached, Export{}))(t).K.Float32s(); !slices.Equal(k, x.k) {
		t.Error("other keys were found")
	}
	y := randomTokens(rand.New(rand.NewSource(72)), 3)
	step(t, cache, attached, y) // attends to what it found
	near(t, "attached", y.out, history{}.with(x).with(y).attention(y.q))
	if s := must(cache.Stats(WholeCache))(t); s.PrefixAttaches != 1 || s.PrefixTokens != 10 || s.PagesIdle != 1 {
		t.Errorf("%+v", s)
	}
}

func TestOneTokenIsLeftToCompute(t *testing.T) {
	cache, prompt := newCache(t, remembering), tokensFrom(1, 8)
	publish(t, cache, PrefixQuery{Tokens: prompt}, PrefixOptions{})
	hit := must(cache.MatchPrefix(PrefixQuery{Tokens: prompt}))(t)
	want := PrefixHit{Tokens: 7, CopiedTokens: 3, KnownTokens: 8, LimitedBy: -1, LoadTokens: 7, TokenNs: hit.TokenNs}
	if hit != want || found(t, cache, prompt) != 8 {
		t.Errorf("%+v", hit)
	}
	for _, none := range [][]int32{{9, 9, 9}, {}, nil} {
		sequence, hit, err := cache.AttachPrefix(PrefixQuery{Tokens: none})
		if err != nil || hit != (PrefixHit{LimitedBy: -1, TokenNs: want.TokenNs}) || must(cache.Length(sequence))(t) != 0 {
			t.Errorf("%v: %+v %v", none, hit, err)
		}
	}
}

func TestEqualPagesBecomeOne(t *testing.T) {
	cache, query := newCache(t, remembering), PrefixQuery{Tokens: tokensFrom(1, 8)}
	publish(t, cache, query, PrefixOptions{})
	sequence := must(cache.Add())(t)
	step(t, cache, sequence, randomTokens(rand.New(rand.NewSource(70)), 8))
	done := must(cache.PublishPrefix(sequence, query, PrefixOptions{}))(t)
	if done != (PrefixPublished{KnownTokens: 8, PagesFreed: 2}) || must(cache.Stats(0))(t).PagesUsed != 2 {
		t.Errorf("%+v", done)
	}
}

func TestSaltsAreApart(t *testing.T) {
	cache := newCache(t, remembering)
	of := func(salt uint64, begin int64) PrefixQuery {
		return PrefixQuery{Tokens: tokensFrom(1, 12), Salt: salt, SaltBegin: begin, AllowAll: true}
	}
	publish(t, cache, of(7, 4), PrefixOptions{})
	for query, want := range map[[2]int]int64{{7, 4}: 12, {8, 4}: 4, {0, 0}: 4, {7, 0}: 0} {
		if hit := must(cache.MatchPrefix(of(uint64(query[0]), int64(query[1]))))(t); hit.Tokens != want {
			t.Errorf("%v: %+v", query, hit)
		}
	}
	if pages := must(cache.DropPrefix(of(7, 4)))(t); pages != 1 { // the last page
		t.Error(pages)
	}
	if hit := must(cache.MatchPrefix(of(7, 4)))(t); hit.Tokens != 8 {
		t.Errorf("%+v", hit)
	}
}

func TestAdaptersAndMediaAreApart(t *testing.T) {
	cache := newCache(t, remembering)
	of := func(adapter string, hash byte) PrefixQuery {
		return PrefixQuery{Tokens: tokensFrom(1, 12), Adapter: []byte(adapter), AllowAll: true,
			Media: []MediaSpan{{Begin: 5, Tokens: 3, Hash: [32]byte{31: hash}}, {Begin: 20, Tokens: 2}}}
	}
	publish(t, cache, of("sql", 1), PrefixOptions{})
	for query, want := range []int64{12, 5, 0, 0} {
		asked := []PrefixQuery{of("sql", 1), of("sql", 2), of("s", 1), {Tokens: tokensFrom(1, 12)}}[query]
		if hit := must(cache.MatchPrefix(asked))(t); hit.Tokens != want {
			t.Errorf("%d: %+v", query, hit)
		}
	}
	wrong := of("", 1)
	wrong.Media[1].Begin = 7
	_, err := cache.MatchPrefix(wrong)
	refused(t, err, ErrOutOfRange, "Media")
}

func TestPinProtectsFromEviction(t *testing.T) {
	cache, query := newCache(t, fourPages), PrefixQuery{Tokens: tokensFrom(1, 8)}
	publish(t, cache, query, PrefixOptions{})
	pin, hit, err := cache.PinPrefix(query)
	if err != nil || hit.Tokens != 8 || must(cache.Stats(0))(t).PagesIdle != 0 {
		t.Fatalf("%+v %v", hit, err)
	}
	sequence := must(cache.Add())(t)
	batch := Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{12}}
	var full *OutOfPages
	if err := cache.CanFit(batch); !errors.As(err, &full) || full.Required != 3 || full.Available != 2 {
		t.Fatal(err)
	}
	check(t, cache.UnpinPrefix(pin))
	check(t, must(cache.Begin(background, batch))(t).Close())
	// A continuation goes before what it continues.
	if left, s := found(t, cache, query.Tokens), must(cache.Stats(0))(t); left != 4 || s.PagesEvicted != 1 {
		t.Errorf("%d %+v", left, s)
	}
	refused(t, cache.UnpinPrefix(pin), ErrStaleID, "Cache.UnpinPrefix")
}

func TestSessionsAreDropped(t *testing.T) {
	cache := newCache(t, remembering)
	ours, theirs := tokensFrom(1, 8), append(tokensFrom(1, 4), tokensFrom(50, 4)...)
	publish(t, cache, PrefixQuery{Tokens: ours}, PrefixOptions{Session: 1})
	publish(t, cache, PrefixQuery{Tokens: theirs}, PrefixOptions{Session: math.MaxUint64})
	if pages := must(cache.DropSession(1))(t); pages != 1 { // the first page is of both
		t.Error(pages)
	}
	if found(t, cache, ours) != 4 || found(t, cache, theirs) != 8 {
		t.Error(found(t, cache, ours), found(t, cache, theirs))
	}
	if pages := must(cache.DropSession(1))(t); pages != 0 {
		t.Error(pages)
	}
	// The page of both is no session's.
	if pages := must(cache.DropSession(math.MaxUint64))(t); pages != 1 || must(cache.Stats(0))(t).PagesUsed != 1 {
		t.Error(pages)
	}
}

// Three pages of their own are published, and a step evicts one of them.
func TestPrioritiesAndTimeOrderEviction(t *testing.T) {
	prompts := [3][]int32{tokensFrom(10, 4), tokensFrom(20, 4), tokensFrom(30, 4)}
	for name, c := range map[string]struct {
		change func(*testing.T, *Cache)
		want   int
	}{
		"not used for longest": {func(*testing.T, *Cache) {}, 0},
		"lower priority": {func(t *testing.T, cache *Cache) {
			check(t, cache.SetPrefixPriority(PrefixQuery{Tokens: prompts[1]}, 49, 0))
		}, 1},
		"session":                {func(t *testing.T, cache *Cache) { check(t, cache.SetSessionPriority(3, 0, 0)) }, 2},
		"session of more weight": {func(t *testing.T, cache *Cache) { check(t, cache.SetSessionPriority(1, 51, 0)) }, 1},
		"expired": {func(t *testing.T, cache *Cache) {
			check(t, cache.SetTime(7))
			check(t, cache.SetPrefixPriority(PrefixQuery{Tokens: prompts[1]}, 100, 2))
			check(t, cache.SetTime(9))
		}, 1},
		"session expired": {func(t *testing.T, cache *Cache) {
			check(t, cache.SetTime(7))
			check(t, cache.SetTime(3)) // never goes back
			check(t, cache.SetPrefixPriority(PrefixQuery{Tokens: prompts[0]}, 0, 0))
			check(t, cache.SetSessionPriority(3, 100, 2))
			check(t, cache.SetTime(9))
			if found(t, cache, prompts[2]) != 4 {
				t.Error("what is expired is not found")
			}
		}, 2},
		"all but one expired": {func(t *testing.T, cache *Cache) {
			check(t, cache.SetPrefixPriority(PrefixQuery{Tokens: prompts[0]}, 0, 0))
			check(t, cache.SetTime(math.MaxInt64))
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			cache := newCache(t, fourPages)
			for i, prompt := range prompts {
				publish(t, cache, PrefixQuery{Tokens: prompt}, PrefixOptions{Priority: 50, Session: uint64(i + 1), TimeToLive: 100})
			}
			c.change(t, cache)
			batch := Batch{Sequences: []Seq{must(cache.Add())(t)}, AppendLengths: []int32{8}}
			check(t, must(cache.Begin(background, batch))(t).Close())
			for i, prompt := range prompts {
				if left := found(t, cache, prompt); left != map[bool]int64{false: 4, true: 0}[i == c.want] {
					t.Errorf("%d tokens of prompt %d are left", left, i)
				}
			}
		})
	}
}

func TestRecurrentStatesAreFoundWhereTheyWerePublished(t *testing.T) {
	cache := newCache(t, remembering, func(c *Config) {
		c.Layers = append(c.Layers, Layer{Group: 1, States: []State{{Shape: []int{2}}}})
		c.Groups = []Group{Full(), Recurrent()}
		c.PrefixPages, c.PrefixCheckpoints = 8, 2
	})
	sequence, prompt := must(cache.Add())(t), tokensFrom(1, 9)
	s := must(cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{6}}))(t)
	check(t, s.Attend(background, 0, randomTokens(rand.New(rand.NewSource(73)), 6).attend()))
	check(t, s.StoreState(1, 0, F32([]float32{3, 4}, 1, 2)))
	check(t, s.End())
	must(cache.PublishPrefix(sequence, PrefixQuery{Tokens: prompt[:6]}, PrefixOptions{}))(t)
	check(t, cache.Remove(sequence))

	short := must(cache.MatchPrefix(PrefixQuery{Tokens: prompt[:6]}))(t) // five of them: the index has no states there
	if short != (PrefixHit{KnownTokens: 6, LimitedBy: 1, TokenNs: short.TokenNs}) {
		t.Errorf("%+v", short)
	}
	attached, hit, err := cache.AttachPrefix(PrefixQuery{Tokens: prompt})
	if err != nil || hit.Tokens != 6 {
		t.Fatalf("%+v %v", hit, err)
	}
	s = must(cache.Begin(background, Batch{Sequences: []Seq{attached}, AppendLengths: []int32{1}}))(t)
	defer s.Close()
	state := make([]float32, 2)
	check(t, s.LoadState(1, 0, F32(state, 1, 2)))
	if !slices.Equal(state, []float32{3, 4}) {
		t.Error(state)
	}
}

func TestClearForgetsAll(t *testing.T) {
	cache, query := newCache(t, remembering), PrefixQuery{Tokens: tokensFrom(1, 4)}
	publish(t, cache, query, PrefixOptions{})
	pin, _, err := cache.PinPrefix(query)
	check(t, err)
	check(t, cache.Clear())
	if found(t, cache, query.Tokens) != 0 || must(cache.Stats(0))(t).PagesUsed != 0 {
		t.Errorf("%+v", must(cache.Stats(0))(t))
	}
	refused(t, cache.UnpinPrefix(pin), ErrStaleID)
}

func TestWrongCallsOnPrefixes(t *testing.T) {
	without := newCache(t)
	sequence := must(without.Add())(t)
	allRefused(t, "cache without index", ErrUnsupported, callsOnPrefixes(without, sequence))
	check(t, without.SetTime(1))
	query := PrefixQuery{Tokens: tokensFrom(1, 4)}
	_, err := without.MatchPrefix(query)
	refused(t, err, ErrUnsupported, "Cache.MatchPrefix", "PrefixIndex")
	_, err = New(Config{Layers: []Layer{{QHeads: 1, KVHeads: 1, HeadDim: 8}}, CapacityTokens: 64, PrefixPages: 4})
	refused(t, err, ErrInvalidArgument, "PrefixPages")

	cache := newCache(t, remembering)
	sequence = must(cache.Add())(t)
	publish := func(sequence Seq, options PrefixOptions) error {
		_, err := cache.PublishPrefix(sequence, query, options)
		return err
	}
	refused(t, publish(sequence, PrefixOptions{}), ErrOutOfRange, "Cache.PublishPrefix")
	for _, priority := range []int{-1, 101, math.MaxInt, math.MinInt} {
		refused(t, publish(sequence, PrefixOptions{Priority: priority}), ErrOutOfRange, "priority")
		refused(t, cache.SetPrefixPriority(query, priority, 0), ErrOutOfRange, "priority")
	}
	refused(t, publish(sequence, PrefixOptions{TimeToLive: -1}), ErrOutOfRange, "TimeToLive")
	refused(t, publish(5, PrefixOptions{}), ErrStaleID)
	refused(t, cache.SetSessionPriority(0, 1, 0), ErrInvalidArgument, "session")
	_, err = cache.DropSession(0)
	refused(t, err, ErrInvalidArgument, "Cache.DropSession")
	refused(t, cache.UnpinPrefix(math.MaxUint64), ErrStaleID)
	refused(t, cache.SetTime(-1), ErrOutOfRange, "Cache.SetTime")
	query.SaltBegin = -1
	_, err = cache.MatchPrefix(query)
	refused(t, err, ErrOutOfRange, "SaltBegin")
}

func TestGoroutinesPublishAndAttach(t *testing.T) {
	cache := newCache(t, func(c *Config) { c.PrefixIndex, c.CapacityTokens, c.MaxOpenForwards = true, 24*4, 4 })
	var all sync.WaitGroup
	for n := range 4 {
		all.Add(1)
		go func() {
			defer all.Done()
			for round := range 40 {
				if err := useCache(cache, append(tokensFrom(1, 6), tokensFrom(int32(100*(round%3)), 1+n)...), uint64(n+1)); err != nil {
					t.Error(err)
					return
				}
			}
			if _, err := cache.DropSession(uint64(n + 1)); err != nil {
				t.Error(err)
			}
		}()
	}
	all.Wait()
	must(cache.DropPrefix(PrefixQuery{}))(t) // what several sessions published is no session's
	if s := must(cache.Stats(0))(t); s.PagesUsed != 0 {
		t.Errorf("%+v", s)
	}
}

// useCache serves a prompt as an engine does, under a pin.
func useCache(cache *Cache, prompt []int32, session uint64) error {
	query := PrefixQuery{Tokens: prompt}
	pin, _, err := cache.PinPrefix(query)
	if err != nil {
		return err
	}
	sequence, hit, err := cache.AttachPrefix(query)
	if err != nil {
		return err
	}
	x := randomTokens(rand.New(rand.NewSource(74)), len(prompt)-int(hit.Tokens))
	s, err := cache.Begin(background, Batch{Sequences: []Seq{sequence}, AppendLengths: []int32{x.count()}})
	if err != nil {
		return err
	}
	defer s.Close()
	_, published := cache.PublishPrefix(sequence, query, PrefixOptions{})
	if !errors.Is(published, ErrBusy) {
		return errors.Join(errors.New("an open step published"), published)
	}
	if err := errors.Join(s.Attend(background, 0, x.attend()), s.End()); err != nil {
		return err
	}
	_, published = cache.PublishPrefix(sequence, query, PrefixOptions{Session: session})
	return errors.Join(published, cache.Remove(sequence), cache.UnpinPrefix(pin))
}

// A query whose tokens another goroutine changes.
func TestTokensThatChangeDuringACall(t *testing.T) {
	cache := newCache(t, remembering)
	sequence, query := must(cache.Add())(t), PrefixQuery{Tokens: tokensFrom(1, 64), AllowAll: true}
	for range 4 {
		step(t, cache, sequence, randomTokens(rand.New(rand.NewSource(75)), 16))
	}
	defer rewrite(query.Tokens, 1<<30)()
	hammer(t, func() error {
		if _, err := cache.PublishPrefix(sequence, query, PrefixOptions{}); err != nil {
			return err
		}
		attached, hit, err := cache.AttachPrefix(query)
		if err != nil {
			return err
		}
		if length := must(cache.Length(attached))(t); length != hit.Tokens {
			t.Fatal(length, hit)
		}
		_, err = cache.DropPrefix(PrefixQuery{})
		return errors.Join(err, cache.Remove(attached))
	})
}
