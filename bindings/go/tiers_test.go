package kvcache

import (
	"context"
	"errors"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func tiered(t testing.TB, folder string) *Cache {
	t.Helper()
	cache := newCache(t, withFingerprint)
	check(t, cache.AddDiskTier(folder, DiskTierOptions{}))
	return cache
}

func withFingerprint(c *Config) { c.PrefixIndex, c.Fingerprint = true, &[32]byte{7} }

// store publishes a prompt, and waits until the tier has it. It returns what was computed, and how many pages were stored.
func store(t testing.TB, cache *Cache, prompt []int32, options PrefixOptions) (history, int64) {
	t.Helper()
	computed, _ := publish(t, cache, PrefixQuery{Tokens: prompt}, options)
	for {
		traffic := must(cache.TierTraffic())(t)
		if traffic.PagesWaiting == 0 {
			return computed, traffic.PagesStored
		}
		time.Sleep(time.Millisecond)
	}
}

func startLoad(t testing.TB, cache *Cache, prompt []int32) *LoadJob {
	t.Helper()
	job, _, err := cache.LoadPrefix(PrefixQuery{Tokens: prompt}, LoadOptions{TokenNs: math.MaxInt64})
	check(t, err)
	return job
}

func TestALaterCacheLoadsWhatThisOneComputed(t *testing.T) {
	folder, prompt := filepath.Join(t.TempDir(), "tier"), tokensFrom(0, 30)
	first := tiered(t, folder)
	computed, _ := store(t, first, prompt, PrefixOptions{})
	if traffic := must(first.TierTraffic())(t); traffic != (TierTraffic{NumTiers: 1, PagesStored: 7}) {
		t.Errorf("%+v", traffic)
	}
	check(t, first.Close())

	cache := tiered(t, folder)
	job, hit, err := cache.LoadPrefix(PrefixQuery{Tokens: prompt}, LoadOptions{})
	check(t, err)
	if hit.Tokens != 0 || hit.LoadTokens != 28 || hit.TierTokens != [8]int64{28} || hit.TokenNs != 0 || job == nil {
		t.Fatalf("%+v %v", hit, job)
	}
	if descriptor := must(job.Descriptor())(t); descriptor < 0 {
		t.Error(descriptor)
	}
	if tokens := must(job.Wait(background))(t); tokens != 28 {
		t.Error(tokens)
	}
	if tokens, ended, err := job.Poll(); tokens != 28 || !ended || err != nil {
		t.Error(tokens, ended, err)
	}
	check(t, job.Cancel()) // it has ended: nothing happens
	sequence, hit, err := cache.AttachPrefix(PrefixQuery{Tokens: prompt})
	if err != nil || hit.Tokens != 28 || hit.LoadTokens != 28 {
		t.Errorf("%+v %v", hit, err)
	}
	x := randomTokens(rand.New(rand.NewSource(73)), 2)
	step(t, cache, sequence, x) // attends to the K and V of the first cache
	near(t, "loaded", x.out, computed.cut(28).with(x).attention(x.q))
	if job := startLoad(t, cache, prompt); job != nil || must(cache.TierTraffic())(t).PagesLoaded != 7 {
		t.Error("loaded again")
	}
}

func TestNothingToLoad(t *testing.T) {
	cache, prompt := tiered(t, t.TempDir()), tokensFrom(0, 16)
	job := startLoad(t, cache, prompt)
	if tokens := must(job.Wait(background))(t); job != nil || tokens != 0 {
		t.Error(job, tokens)
	}
	check(t, job.Cancel())
	check(t, job.Close())
	_, err := job.Descriptor()
	refused(t, err, ErrNullArgument, "LoadJob is nil")

	if _, stored := store(t, cache, prompt, PrefixOptions{KeepPrivate: true}); stored != 0 {
		t.Error("a private prefix was stored")
	}
	must(cache.DropPrefix(PrefixQuery{}))(t)
	store(t, cache, prompt, PrefixOptions{})
	must(cache.DropPrefix(PrefixQuery{}))(t)
	salted, _, err := cache.LoadPrefix(PrefixQuery{Tokens: prompt, Salt: 1}, LoadOptions{})
	if salted != nil || err != nil {
		t.Error("another salt", err)
	}
	if tokens := must(startLoad(t, cache, prompt).Wait(background))(t); tokens != 16 {
		t.Error(tokens)
	}
}

func TestOptionsOfATier(t *testing.T) {
	for options, want := range map[DiskTierOptions]int64{
		{Sync: TierSyncNone, MinTokens: 16}: 4,
		{Sync: TierSyncFull, MinTokens: 17}: 0,
		{Store: TierStoreReused}:            0, // the index had none of it
		{Store: TierStoreNothing}:           0,
		{Store: TierStoreEvicted}:           0, // the pool has enough free pages
	} {
		cache := newCache(t, withFingerprint)
		check(t, cache.AddDiskTier(t.TempDir(), options))
		if _, stored := store(t, cache, tokensFrom(0, 16), PrefixOptions{}); stored != want {
			t.Errorf("%+v: %d pages", options, stored)
		}
	}
}

// A job that is cancelled twice, or closed, gives its pages and its sequence back.
func TestCancelledAndClosedJobs(t *testing.T) {
	folder, prompt := t.TempDir(), tokensFrom(0, 64)
	store(t, tiered(t, folder), prompt, PrefixOptions{})
	for _, closed := range []bool{false, true} {
		cache := tiered(t, folder)
		job := startLoad(t, cache, prompt)
		if closed {
			check(t, job.Close())
			check(t, job.Close())
		} else {
			check(t, job.Cancel())
			check(t, job.Cancel())
			loaded := must(job.Wait(background))(t)
			if loaded > 64 || found(t, cache, prompt) != loaded {
				t.Error(loaded)
			}
		}
		s := must(cache.Stats(WholeCache))(t)
		if s.Sequences != 0 || s.PagesUsed != s.PagesIdle || must(cache.TierTraffic())(t).PagesLoading != 0 {
			t.Errorf("%+v", s)
		}
		check(t, cache.Clear()) // ErrBusy while a load runs
	}
}

func TestAContextEndsAWait(t *testing.T) {
	folder, prompt := t.TempDir(), tokensFrom(0, 64)
	store(t, tiered(t, folder), prompt, PrefixOptions{})
	job := startLoad(t, tiered(t, folder), prompt)
	reason := errors.New("the client is gone")
	ctx, cancel := context.WithCancelCause(background)
	cancel(reason)
	_, err := job.Wait(ctx)
	refused(t, err, ErrCancelled, "LoadJob.Wait")
	if !errors.Is(err, reason) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if tokens := must(job.Wait(background))(t); tokens != 64 { // it ran on
		t.Error(tokens)
	}
}

// Goroutines wait for one job, and all see its end.
func TestManyWaitForAJob(t *testing.T) {
	folder, prompt := t.TempDir(), tokensFrom(0, 64)
	store(t, tiered(t, folder), prompt, PrefixOptions{})
	job := startLoad(t, tiered(t, folder), prompt)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if tokens, err := job.Wait(background); tokens != 64 || err != nil {
				t.Error(tokens, err)
			}
		})
	}
	all.Wait()
}

func TestJobsOfCachesThatAreGone(t *testing.T) {
	folder, prompt := t.TempDir(), tokensFrom(0, 32)
	store(t, tiered(t, folder), prompt, PrefixOptions{})
	cache := tiered(t, folder)
	job := startLoad(t, cache, prompt)
	unknown := &LoadJob{cache: cache, id: job.id + 1}
	_, _, err := unknown.Poll()
	refused(t, err, ErrStaleID, "LoadJob.Poll: job")
	refused(t, unknown.Cancel(), ErrStaleID, "LoadJob.Cancel: job")
	check(t, unknown.Close())
	check(t, cache.Close())
	for _, gone := range []*LoadJob{job, new(LoadJob)} {
		allRefused(t, "job", ErrNullArgument, callsOfLoadJob(gone))
		check(t, gone.Close())
	}
}

func TestTiersThatAreRefused(t *testing.T) {
	folder := t.TempDir()
	refused(t, newCache(t).AddDiskTier(folder, DiskTierOptions{}), ErrUnsupported, "Cache.AddDiskTier: a tier needs PrefixIndex")
	plain := newCache(t, withFingerprint)
	_, _, err := plain.LoadPrefix(PrefixQuery{Tokens: []int32{1, 2}}, LoadOptions{})
	refused(t, err, ErrUnsupported, "Cache.LoadPrefix: the cache has no tier")
	for _, bad := range []struct {
		options DiskTierOptions
		status  Status
		words   string
	}{
		{DiskTierOptions{CapacityBytes: -1}, ErrOutOfRange, "CapacityBytes -1"},
		{DiskTierOptions{MinTokens: -1}, ErrOutOfRange, "MinTokens -1"},
		{DiskTierOptions{Sync: 9}, ErrInvalidArgument, "sync 9"},
		{DiskTierOptions{Store: 9}, ErrInvalidArgument, "store 9"},
	} {
		refused(t, plain.AddDiskTier(folder, bad.options), bad.status, bad.words)
	}
	refused(t, plain.AddDiskTier("a\x00b", DiskTierOptions{}), ErrInvalidArgument, "directory", "NUL")
	file := filepath.Join(folder, "file")
	check(t, os.WriteFile(file, nil, 0o600))
	refused(t, plain.AddDiskTier(filepath.Join(file, "tier"), DiskTierOptions{}), ErrIo, filepath.Join(file, "tier"))
	if traffic := must(plain.TierTraffic())(t); traffic != (TierTraffic{}) {
		t.Errorf("%+v", traffic)
	}
	cache := tiered(t, filepath.Join(folder, "tier"))
	_, _, err = cache.LoadPrefix(PrefixQuery{Tokens: []int32{1, 2}}, LoadOptions{TokenNs: -1})
	refused(t, err, ErrOutOfRange, "TokenNs -1")
}

func TestASequenceIsAttachedToALoadThatRuns(t *testing.T) {
	folder, prompt := filepath.Join(t.TempDir(), "tier"), tokensFrom(0, 30)
	first := tiered(t, folder)
	computed, _ := store(t, first, prompt, PrefixOptions{})
	check(t, first.Close())

	cache := tiered(t, folder)
	job := startLoad(t, cache, prompt)
	sequence, tokens, err := job.Attach(PendingOptions{Wait: true, Timeout: time.Minute})
	check(t, err)
	if length := must(cache.Length(sequence))(t); tokens != 28 || length != 28 {
		t.Error(tokens, length)
	}
	waiting, pending, err := cache.Pending(sequence) // until a step or a poll has seen the end of the load
	if err != nil || !pending || waiting.Tokens != 28 || waiting.Pages != 7 || waiting.Failed {
		t.Errorf("%+v %v %v", waiting, pending, err)
	}
	_, err = cache.Fork(sequence)
	refused(t, err, ErrPending)
	x := randomTokens(rand.New(rand.NewSource(73)), 2)
	step(t, cache, sequence, x)
	near(t, "attached", x.out, computed.cut(28).with(x).attention(x.q))
	if _, pending, err := cache.Pending(sequence); pending || err != nil {
		t.Error(pending, err)
	}
	if tokens := must(job.Wait(background))(t); tokens != 28 {
		t.Error(tokens)
	}
	_, _, err = job.Attach(PendingOptions{})
	refused(t, err, ErrStaleID, "LoadJob.Attach: job")
	_, _, err = job.Attach(PendingOptions{Timeout: -1})
	refused(t, err, ErrOutOfRange, "Timeout -1")
	_, _, err = (*LoadJob)(nil).Attach(PendingOptions{})
	refused(t, err, ErrNullArgument)
	_, _, err = cache.Pending(Seq(12345))
	refused(t, err, ErrStaleID, "Cache.Pending")
	check(t, cache.CheckInvariants())
}

func TestAResumedSequenceGoesOn(t *testing.T) {
	cache := newCache(t, withFingerprint)
	check(t, cache.AddHostTier(HostTierOptions{CapacityBytes: 1 << 20}))
	sequence := must(cache.Add())(t)
	random := rand.New(rand.NewSource(3))
	computed, next := randomTokens(random, 30), randomTokens(random, 2)
	step(t, cache, sequence, computed)
	wait := func(job *LoadJob, err error) {
		t.Helper()
		check(t, err)
		if tokens := must(job.Wait(background))(t); tokens != 30 {
			t.Error(tokens)
		}
	}
	wait(cache.Suspend(sequence))
	if traffic := must(cache.TierTraffic())(t); traffic.SequencesSuspended != 1 || must(cache.Stats(-1))(t).PagesUsed != 0 {
		t.Errorf("%+v", traffic)
	}
	_, err := cache.Fork(sequence)
	refused(t, err, ErrSuspended)
	wait(cache.Resume(sequence))
	step(t, cache, sequence, next) // it attends to what came back
	near(t, "resumed", next.out, history{}.with(computed).with(next).attention(next.q))
	_, err = cache.Resume(sequence)
	refused(t, err, ErrOrder)
	err = cache.AddHostTier(HostTierOptions{CapacityBytes: 10})
	refused(t, err, ErrInvalidArgument, "Cache.AddHostTier: CapacityBytes is 10")
	err = cache.AddHostTier(HostTierOptions{CapacityBytes: 1 << 20, Pinned: true})
	refused(t, err, ErrUnsupported, "Cache.AddHostTier: the device")
	check(t, cache.CheckInvariants())
}
