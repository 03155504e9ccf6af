package kvcache

import (
	"context"
	"sync"
	"time"
)

// TierSync says when a page that a tier stores is on the disk.
type TierSync int32

const (
	TierSyncData TierSync = kvcTierSyncData // before it becomes visible
	TierSyncNone TierSync = kvcTierSyncNone // when the system writes it: after a loss of power it can be missing, and is never wrong
	TierSyncFull TierSync = kvcTierSyncFull // as TierSyncData, and its name too: what was stored survives a loss of power
)

// TierStore says which published pages a tier stores.
type TierStore int32

const (
	TierStorePublished TierStore = kvcTierStorePublished // all
	TierStoreReused    TierStore = kvcTierStoreReused    // those that the index had before: a request came back to them
	TierStoreNothing   TierStore = kvcTierStoreNothing   // none: the tier is read only
	TierStoreEvicted   TierStore = kvcTierStoreEvicted   // those that the pools will evict next
)

// TierReads says how the threads of a folder's tier read files.
type TierReads int32

const (
	TierReadsAny      TierReads = 0               // as TierReadsIoUring where the kernel allows it, else as TierReadsBlocking
	TierReadsBlocking TierReads = kvcTierBlocking // each thread reads one file at a time
	TierReadsIoUring  TierReads = kvcTierIoUring  // a thread reads several small files at once, by io_uring
)

// DiskTierOptions says how a folder keeps pages. Zero is the default everywhere.
type DiskTierOptions struct {
	CapacityBytes int64 // the objects used least recently are removed beyond it; 0 = no limit
	Sync          TierSync
	Store         TierStore
	MinTokens     int64 // a publish of fewer tokens is not stored
	// Medium is the name of the tier in messages of events, which no other tier has. Empty: "STORAGE"; of a host tier "CPU" if the
	// cache is on a GPU, else "HOST"; with a number if that is taken.
	Medium string
	Reads  TierReads
}

// HostTierOptions says how memory of this process keeps pages.
type HostTierOptions struct {
	CapacityBytes int64 // the objects used least recently are removed beyond it; at least 4096
	Store         TierStore
	MinTokens     int64 // a publish of fewer tokens is not stored
	// Medium is the name of the tier in messages of events, which no other tier has. Empty: "STORAGE"; of a host tier "CPU" if the
	// cache is on a GPU, else "HOST"; with a number if that is taken.
	Medium string
	// Pinned is for a cache on a GPU, which then copies pages to and from this memory directly. CapacityBytes is at least 65536,
	// and all of it is allocated and locked when the tier is added, which can take seconds.
	Pinned bool
}

// LoadOptions says what the pages of a load get, as in PrefixOptions, and what computing would cost instead.
type LoadOptions struct {
	Priority   int // 0 to 100
	Session    uint64
	TimeToLive int64
	// TokenNs is what it costs to compute a token, in nanoseconds. By the measurements of the tiers, the load ends where computing
	// is faster. 0 = as the cache has measured it; math.MaxInt64 = load in any case.
	TokenNs int64
}

// TierTraffic counts pages of groups that went between the pools and all tiers, since the cache was made.
type TierTraffic struct {
	NumTiers       int
	PagesWaiting   int64 // queued for their store, or being stored. 0: the tiers have all that they will get
	PagesStored    int64
	PagesDropped   int64 // evicted before they were copied, or too many for the queue
	PagesNotStored int64 // that a tier refused, or failed to store
	PagesLoading   int64 // of loads that run
	PagesLoaded    int64
	PagesNotLoaded int64 // that a tier no longer had, or whose bytes were not right

	SequencesSuspended int64 // that are suspended now
}

// AddDiskTier adds a folder that keeps published pages after they were evicted, and after the process has ended. It is below
// the tiers that were added before. It is made if it does not exist, and several processes may share it. The call reads the
// names in it. The cache needs Config.PrefixIndex and Config.Fingerprint.
func (c *Cache) AddDiskTier(directory string, options DiskTierOptions) error {
	a, h, err := c.enter("Cache.AddDiskTier")
	if err != nil {
		return err
	}
	defer leave(a, h)
	name, err := pathOf("Cache.AddDiskTier", "directory", directory)
	if err != nil {
		return err
	}
	config := &a.tier
	config.init()
	config.directory, config.capacityBytes = address(a, name), options.CapacityBytes
	config.sync, config.store, config.minTokens = int32(options.Sync), int32(options.Store), options.MinTokens
	config.flags = uint32(options.Reads)
	defer config.init() // it no longer points to the names
	if err := setMedium("Cache.AddDiskTier", a, config, options.Medium); err != nil {
		return err
	}
	status := h.lib.cacheAddTier(a, h.address, config)
	return a.check(status)
}

// AddHostTier adds memory of this process that keeps published pages after they were evicted. It is below the tiers that were
// added before, and takes memory when objects fill it, or all of it now if it is pinned.
func (c *Cache) AddHostTier(options HostTierOptions) error {
	a, h, err := c.enter("Cache.AddHostTier")
	if err != nil {
		return err
	}
	defer leave(a, h)
	config := &a.tier
	config.init()
	config.flags, config.capacityBytes = kvcTierHost, options.CapacityBytes
	if options.Pinned {
		config.flags |= kvcTierPinned
	}
	config.store, config.minTokens = int32(options.Store), options.MinTokens
	defer config.init()
	if err := setMedium("Cache.AddHostTier", a, config, options.Medium); err != nil {
		return err
	}
	status := h.lib.cacheAddTier(a, h.address, config)
	return ofFunction("Cache.AddHostTier", a.check(status))
}

// setMedium gives C the name of a tier in messages of events.
func setMedium(function string, a *arena, config *kvcTierConfig, medium string) error {
	if medium == "" {
		return nil
	}
	name, err := pathOf(function, "Medium", medium)
	if err == nil {
		config.medium = address(a, name)
	}
	return err
}

// Suspend starts to move the pages that only this sequence uses to a tier. They are free when Poll or Wait has seen the end of
// the job. Until then the sequence is busy, and suspended then: it keeps its id, its length and its settings. Each page goes to
// the first tier that takes it, and a host tier never evicts it. A failed or cancelled job is an error of Poll, and the sequence
// is as it was.
func (c *Cache) Suspend(sequence Seq) (*LoadJob, error) {
	return c.moving("Cache.Suspend", func(l *library, a *arena, cache uintptr) Status {
		return l.seqSuspend(a, cache, sequence, &a.id)
	})
}

// Resume starts to bring back a suspended sequence, which is usable when the job has ended. It takes all pages at once: after an
// OutOfPages nothing has changed.
func (c *Cache) Resume(sequence Seq) (*LoadJob, error) {
	return c.moving("Cache.Resume", func(l *library, a *arena, cache uintptr) Status {
		return l.seqResume(a, cache, sequence, &a.id)
	})
}

func (c *Cache) moving(function string, call func(*library, *arena, uintptr) Status) (*LoadJob, error) {
	a, h, err := c.enter(function)
	if err != nil {
		return nil, err
	}
	defer leave(a, h)
	a.id = 0
	if err := a.check(call(h.lib, a, h.address)); err != nil {
		return nil, err
	}
	return &LoadJob{cache: c, id: a.id}, nil
}

// LoadPrefix starts to load what the tiers have of a prefix and the pools lack. AttachPrefix finds it when the job has ended.
// The job is nil if nothing is to be loaded, or computing is faster; a nil job has ended with 0 tokens. While it runs, a load
// holds one sequence and its pages. The hit is that of MatchPrefix.
func (c *Cache) LoadPrefix(query PrefixQuery, options LoadOptions) (job *LoadJob, hit PrefixHit, err error) {
	err = c.withQuery("Cache.LoadPrefix", query, func(l *library, a *arena, cache uintptr) Status {
		o := &a.loadOptions
		o.init()
		o.priority, o.session = narrow(options.Priority), options.Session
		o.timeToLive, o.tokenNs = options.TimeToLive, options.TokenNs
		a.id = 0
		status := l.prefixLoad(a, cache, &a.query, o, &a.hit, &a.id)
		hit = a.hit.found(status)
		if status == kvcOk && a.id != 0 {
			job = &LoadJob{cache: c, id: a.id}
		}
		return status
	})
	return job, hit, err
}

// TierTraffic counts pages that were stored and loaded. An engine that shuts down waits until PagesWaiting is 0.
func (c *Cache) TierTraffic() (TierTraffic, error) {
	a, h, err := c.enter("Cache.TierTraffic")
	if err != nil {
		return TierTraffic{}, err
	}
	defer leave(a, h)
	t := &a.traffic
	t.init()
	if err := a.check(h.lib.cacheTierTraffic(a, h.address, t)); err != nil {
		return TierTraffic{}, err
	}
	return TierTraffic{NumTiers: int(t.numTiers), PagesWaiting: t.pagesWaiting, PagesStored: t.pagesStored,
		PagesDropped: t.pagesDropped, PagesNotStored: t.pagesNotStored, PagesLoading: t.pagesLoading,
		PagesLoaded: t.pagesLoaded, PagesNotLoaded: t.pagesNotLoaded, SequencesSuspended: t.sequencesSuspended}, nil
}

// LoadJob is a load, suspend or resume that runs. Any goroutine may call its methods. A job must be polled or waited for until
// its end, also after Cancel, or closed: until then it holds its pages, and the garbage collector does not end it.
type LoadJob struct {
	cache  *Cache
	id     uint64
	mutex  sync.Mutex
	ended  bool // the library has said so
	tokens int64
}

// Poll says whether the job has ended, and then how many tokens were loaded, or how many the suspended or resumed sequence has.
// It waits for nothing. If a suspend or resume has failed, the error ends the job.
func (j *LoadJob) Poll() (tokens int64, ended bool, err error) {
	if j == nil {
		return 0, true, nil
	}
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if j.ended {
		return j.tokens, true, nil
	}
	a, h, err := j.cache.enter("LoadJob.Poll")
	if err != nil {
		return 0, false, err
	}
	defer leave(a, h)
	a.jobInfo.init()
	if err := a.check(h.lib.jobPoll(a, h.address, j.id, &a.jobInfo)); err != nil {
		return 0, false, err
	}
	j.ended, j.tokens = a.jobInfo.done != 0, a.jobInfo.tokens
	return j.tokens, j.ended, nil
}

// Wait waits for the end of the job, and returns how many tokens were loaded. When ctx ends before, Wait returns an error with
// ErrCancelled; the job runs on, and can be waited for again.
func (j *LoadJob) Wait(ctx context.Context) (tokens int64, err error) {
	if ctx == nil {
		ctx = context.Background()
	}
	for pause := 50 * time.Microsecond; ctx.Err() == nil; pause = min(2*pause, time.Millisecond) {
		tokens, ended, err := j.Poll()
		if err != nil || ended {
			return tokens, err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	ended := misuse(ErrCancelled, "LoadJob.Wait: the context has ended")
	ended.ended = endingOf(ctx)
	return 0, ended
}

// Cancel ends the job early. Pages that are being read are waited for: poll or wait for its end. It does nothing after that.
func (j *LoadJob) Cancel() error {
	if j == nil {
		return nil
	}
	j.mutex.Lock()
	defer j.mutex.Unlock()
	if j.ended {
		return nil
	}
	a, h, err := j.cache.enter("LoadJob.Cancel")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.jobCancel(a, h.address, j.id))
}

// Close cancels the job, and waits for the pages that are being read. It does nothing after the end of the job, and after
// that of its cache.
func (j *LoadJob) Close() error {
	if j.Cancel() == nil {
		_, _ = j.Wait(context.Background()) // an error says that the job is gone
	}
	return nil
}

// PendingOptions says how calls of a step treat the layers of a pending sequence. Zero is the default everywhere.
type PendingOptions struct {
	Wait    bool          // calls of a step wait until their layer is ready, instead of returning ErrPending
	Timeout time.Duration // the job is cancelled this long after Attach; 0 = no limit
}

// Attach makes a new sequence with the prefix that the job loads, before it is loaded. Its steps can attend to each layer as soon as
// that is loaded. Until the job has ended, the sequence is pending: it can only be used in steps, and removed. The job must still be
// polled to its end. If a page cannot be loaded, calls of a step return ErrIo or ErrCancelled; after the step was aborted and the job
// has ended, the sequence has the length of what was loaded. ErrPending: a tier still searches, so Poll the job and try again.
func (j *LoadJob) Attach(options PendingOptions) (sequence Seq, tokens int64, err error) {
	if j == nil {
		return 0, 0, misuse(ErrNullArgument, "LoadJob.Attach: the LoadJob is nil")
	}
	a, h, err := j.cache.enter("LoadJob.Attach")
	if err != nil {
		return 0, 0, err
	}
	defer leave(a, h)
	how := &a.pendingHow
	how.init()
	if options.Wait {
		how.flags = kvcPendingWait
	}
	how.timeoutNs = int64(options.Timeout)
	a.seq, a.numbers[0] = 0, 0
	if err := a.check(h.lib.prefixAttachPending(a, h.address, j.id, how, &a.seq, &a.numbers[0])); err != nil {
		return 0, 0, err
	}
	return a.seq, a.numbers[0], nil
}

// PendingLoad is what a sequence of LoadJob.Attach still waits for.
type PendingLoad struct {
	ReadyLayers int   // the layers before this one are ready
	Tokens      int64 // of the sequence, whose pages the job loads
	Pages       int64 // of all groups that the job loads
	PagesLoaded int64
	Failed      bool // the load cannot complete, so the sequence will become shorter
}

// Pending says what a sequence of LoadJob.Attach still waits for. The bool is false if it waits for nothing; then all its layers are
// ready.
func (c *Cache) Pending(sequence Seq) (PendingLoad, bool, error) {
	a, h, err := c.enter("Cache.Pending")
	if err != nil {
		return PendingLoad{}, false, err
	}
	defer leave(a, h)
	info := &a.pendingInfo
	info.init()
	if err := a.check(h.lib.seqPending(a, h.address, sequence, info)); err != nil {
		return PendingLoad{}, false, err
	}
	return PendingLoad{ReadyLayers: int(info.readyLayers), Tokens: info.tokens, Pages: info.pages, PagesLoaded: info.pagesLoaded,
		Failed: info.failed != 0}, info.job != 0, nil
}

// Descriptor is a file descriptor that is readable while some job of the cache has ended and was not polled since: for poll,
// epoll and the like. It is the cache's until Close: do not read or close it, and make no os.File of it.
func (j *LoadJob) Descriptor() (int, error) {
	if j == nil {
		return -1, misuse(ErrNullArgument, "LoadJob.Descriptor: the LoadJob is nil")
	}
	a, h, err := j.cache.enter("LoadJob.Descriptor")
	if err != nil {
		return -1, err
	}
	defer leave(a, h)
	a.descriptor = -1
	err = a.check(h.lib.cacheJobDescriptor(a, h.address, &a.descriptor))
	return int(a.descriptor), err
}
