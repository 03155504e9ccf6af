package kvcache

import (
	"context"
	"errors"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// computed is a cache with a sequence of n tokens.
func computed(t testing.TB, n int) (*Cache, Seq, history) {
	t.Helper()
	cache := newCache(t)
	sequence := must(cache.Add())(t)
	x := randomTokens(rand.New(rand.NewSource(int64(n))), n)
	step(t, cache, sequence, x)
	return cache, sequence, history{}.with(x)
}

// goesOn checks attention of one more token over a received sequence.
func goesOn(t testing.TB, cache *Cache, sequence Seq, stored history) {
	t.Helper()
	x := randomTokens(rand.New(rand.NewSource(99)), 1)
	step(t, cache, sequence, x)
	near(t, "attention over what was received", x.out, stored.with(x).attention(x.q))
}

func TestTransferToAnotherCache(t *testing.T) {
	prefill, source, stored := computed(t, 21)
	decode := newCache(t, func(c *Config) { c.PageSize = 8 })
	incoming := must(decode.Receive(21, ReceiveOptions{Timeout: time.Minute}))(t)
	outgoing := must(prefill.Send(source, must(incoming.Describe())(t)))(t)
	if progress := must(outgoing.Poll())(t); progress.Done || progress.Tokens != 21 {
		t.Errorf("%+v", progress)
	}
	received := must(incoming.Wait(background))(t)
	if !received.Done || received.Tokens != 21 || received.Bytes != 21*2*kvHeads*dim*4 || received.Sequence == 0 {
		t.Errorf("%+v", received)
	}
	if sent := must(outgoing.Wait(nil))(t); !sent.Done || sent.Sequence != 0 || sent.Bytes != received.Bytes {
		t.Errorf("%+v", sent)
	}
	if again := must(incoming.Poll())(t); again != received {
		t.Errorf("%+v", again)
	}
	check(t, incoming.Cancel())
	check(t, incoming.Close())
	goesOn(t, decode, received.Sequence, stored)
	goesOn(t, prefill, source, stored)
}

func TestOnlyTheTailOfAPrefixTravels(t *testing.T) {
	prefill, source, stored := computed(t, 21)
	decode, prefix := newCache(t), must(prefill.Fork(source))(t)[0]
	check(t, prefill.Truncate([]Seq{prefix}, []int64{10}))
	first := must(decode.Receive(10, ReceiveOptions{Timeout: time.Hour}))(t)
	out := must(prefill.Send(prefix, must(first.Describe())(t)))(t)
	must(out.Poll())(t)
	has := must(first.Wait(background))(t).Sequence
	must(out.Wait(background))(t)
	incoming := must(decode.Receive(21, ReceiveOptions{Prefix: has, Timeout: time.Hour}))(t)
	outgoing := must(prefill.Send(source, must(incoming.Describe())(t)))(t)
	must(outgoing.Poll())(t)
	received := must(incoming.Wait(background))(t)
	if received.Bytes != (21-8)*2*kvHeads*dim*4 { // two whole pages are shared
		t.Errorf("%+v", received)
	}
	goesOn(t, decode, received.Sequence, stored)
	check(t, outgoing.Close())
}

func TestTransfersThatFail(t *testing.T) {
	prefill, source, _ := computed(t, 8)
	decode := newCache(t)
	_, err := decode.Receive(0, ReceiveOptions{})
	refused(t, err, ErrOutOfRange, "Cache.Receive", "NumTokens 0")
	_, err = decode.Receive(8, ReceiveOptions{Timeout: -1})
	refused(t, err, ErrOutOfRange, "Timeout")
	_, err = decode.Receive(1<<20, ReceiveOptions{})
	if pages := (*OutOfPages)(nil); !errors.As(err, &pages) {
		t.Error(err)
	}
	incoming := must(decode.Receive(8, ReceiveOptions{Timeout: time.Hour}))(t)
	description := must(incoming.Describe())(t)
	for _, broken := range [][]byte{nil, {}, description[:len(description)-1]} {
		if _, err := prefill.Send(source, broken); err == nil {
			t.Errorf("%d bytes of a description", len(broken))
		}
	}
	other := newCache(t, func(c *Config) { c.Layers[0].HeadDim = 32 })
	_, err = other.Send(must(other.Add())(t), description)
	refused(t, err, ErrLayout, "Cache.Send")
	outgoing := must(prefill.Send(source, description))(t)
	_, err = outgoing.Describe()
	refused(t, err, ErrInvalidArgument, "Transfer.Describe")
	must(outgoing.Poll())(t)
	ended, cancel := context.WithCancel(background)
	cancel()
	_, err = incoming.Wait(ended)
	refused(t, err, ErrCancelled, "Transfer.Wait")
	check(t, outgoing.Close())
	check(t, outgoing.Close())
	_, err = incoming.Wait(background)
	refused(t, err, ErrIo, "Transfer.Poll", "cancelled")
	_, err = incoming.Poll()
	refused(t, err, ErrStaleID)
	silent := must(decode.Receive(8, ReceiveOptions{Timeout: 20 * time.Millisecond}))(t)
	_, err = silent.Wait(background)
	refused(t, err, ErrIo, "silent")
	if pages := must(decode.Stats(0))(t).PagesUsed; pages != 0 {
		t.Errorf("%d pages of failed transfers", pages)
	}
	check(t, (*Transfer)(nil).Close())
}

func TestTransportsThatAreNone(t *testing.T) {
	cache := newCache(t)
	refused(t, cache.SetTransport("/no/such/library.so", ""), ErrIo, "Cache.SetTransport", "library.so")
	refused(t, cache.SetTransport("a\x00b", ""), ErrInvalidArgument, "NUL")
	refused(t, cache.SetTransport(must(LibraryPath())(t), ""), ErrUnsupported, "Cache.SetTransport", "kvc_transport_open")
	text := filepath.Join(t.TempDir(), "text.so")
	check(t, os.WriteFile(text, []byte("no library"), 0o600))
	t.Setenv("KVCACHE_UCX_LIBRARY", text)
	refused(t, cache.UseUCX("", ""), ErrIo, "Cache.UseUCX")
	t.Setenv("KVCACHE_NIXL_LIBRARY", text)
	refused(t, cache.UseNIXL(map[string]string{"backend": "UCX"}), ErrIo, "Cache.UseNIXL")
	for name, value := range map[string]string{"": "x", "a=b": "x", "a;b": "x", "a": "x;y"} {
		refused(t, cache.UseNIXL(map[string]string{name: value}), ErrInvalidArgument, "Cache.UseNIXL", "no option")
	}
	must(cache.Receive(1, ReceiveOptions{}))(t) // it reaches caches of this process
}
