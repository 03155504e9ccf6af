package kvcache

// PrefixQuery is tokens, and what their K and V follow from besides the tokens before them.
type PrefixQuery struct {
	Tokens    []int32     // any numbers; C reads the slices during the call alone
	Salt      uint64      // tokens under different salts never match; 0 = no salt
	SaltBegin int64       // the salt holds from the page that contains this token on: tenants can share the tokens before it
	Adapter   []byte      // name of a LoRA adapter or the like: tokens under different adapters never match; empty: none
	Media     []MediaSpan // by position, without overlap. Tokens match up to the first difference of the media
	AllowAll  bool        // MatchPrefix and AttachPrefix may find all tokens. Else one less: the logits of the last one are needed
}

// PrefixHit is what the prefix index holds of a query.
type PrefixHit struct {
	Tokens       int64 // the longest prefix that every group can serve
	CopiedTokens int64 // of these, the tokens in a last page that is not full, which AttachPrefix copies
	KnownTokens  int64 // tokens that were published in this order, whatever is left of their pages
	LimitedBy    int   // the group because of which Tokens is below what was searched for and known; -1 = none
	LoadTokens   int64 // with tiers: what Tokens would be after LoadPrefix, without tokens that are faster to compute. Else Tokens
	LoadNs       int64 // with tiers: how long that load takes, as they measured it; 0 = nothing to load, or not measured
	TokenNs      int64 // how long it takes to compute one token, as the cache measured it on the CPU; 0 = not measured
	// TierTokens has how many tokens after Tokens each tier has, in the order in which the tiers were added. Only MatchPrefix and
	// LoadPrefix search tiers.
	TierTokens [8]int64
}

// PrefixOptions says how long published tokens should stay, and whose they are. Zero is the default everywhere.
type PrefixOptions struct {
	Priority    int    // 0 to 100: prefixes of lower priority are evicted first
	Session     uint64 // DropSession drops what one session alone published; 0 = no session
	TimeToLive  int64  // so long after now, in the unit of SetTime, the tokens are evicted before all others; 0 = no limit
	KeepPrivate bool   // no tier stores what this publish adds
}

// PrefixPublished is what a publish did.
type PrefixPublished struct {
	KnownTokens int64 // tokens of the query that the index holds now: fewer than all if it is full of pages in use
	PagesAdded  int64 // pages that the index did not hold before, in all groups
	PagesFreed  int64 // pages of the sequence that became free, because the index had others with the same tokens
}

// PrefixPin is the id of a pin. The pin lives until UnpinPrefix or Clear; no garbage collector ends it.
type PrefixPin uint64

// MatchPrefix says what AttachPrefix would find, and changes nothing. This and all other methods on prefixes need
// Config.PrefixIndex.
func (c *Cache) MatchPrefix(query PrefixQuery) (hit PrefixHit, err error) {
	err = c.withQuery("Cache.MatchPrefix", query, func(l *library, a *arena, cache uintptr) Status {
		status := l.prefixMatch(a, cache, &a.query, &a.hit)
		hit = a.hit.found(status)
		return status
	})
	return hit, err
}

// AttachPrefix makes a new sequence that holds the longest prefix of the query that every group can serve. Whole pages are
// shared, and a part of a page is copied. If nothing is found, the sequence is empty.
func (c *Cache) AttachPrefix(query PrefixQuery) (sequence Seq, hit PrefixHit, err error) {
	err = c.withQuery("Cache.AttachPrefix", query, func(l *library, a *arena, cache uintptr) Status {
		a.seq = 0
		status := l.prefixAttach(a, cache, &a.query, 0, &a.hit, &a.seq)
		sequence, hit = a.seq, a.hit.found(status)
		return status
	})
	return sequence, hit, err
}

// PublishPrefix makes the first tokens of a sequence findable: those of the query, which must be the tokens that were
// appended to it. The index shares its pages, and copies nothing. The call can be repeated while the sequence grows.
func (c *Cache) PublishPrefix(sequence Seq, query PrefixQuery, options PrefixOptions) (done PrefixPublished, err error) {
	err = c.withQuery("Cache.PublishPrefix", query, func(l *library, a *arena, cache uintptr) Status {
		a.options.init()
		a.options.priority, a.options.session = narrow(options.Priority), options.Session
		a.options.timeToLive, a.options.flags = options.TimeToLive, flag(options.KeepPrivate, kvcPrefixKeepPrivate)
		p := &a.published
		p.init()
		status := l.prefixPublish(a, cache, sequence, &a.query, &a.options, p)
		done = PrefixPublished{KnownTokens: p.knownTokens, PagesAdded: p.pagesAdded, PagesFreed: p.pagesFreed}
		return status
	})
	return done, err
}

// DropPrefix forgets every published prefix that begins with the query's tokens: their last page and all that continues it.
// Without tokens it forgets all that was published with the salt and the adapter from the first page on. It returns how many pages the
// index gave back. Sequences keep their pages.
func (c *Cache) DropPrefix(query PrefixQuery) (pages int64, err error) {
	err = c.withQuery("Cache.DropPrefix", query, func(l *library, a *arena, cache uintptr) Status {
		a.numbers[0] = 0
		status := l.prefixDrop(a, cache, &a.query, &a.numbers[0])
		pages = a.numbers[0]
		return status
	})
	return pages, err
}

// DropSession forgets what a session alone published. It returns how many pages the index gave back.
func (c *Cache) DropSession(session uint64) (pages int64, err error) {
	a, h, err := c.enter("Cache.DropSession")
	if err != nil {
		return 0, err
	}
	defer leave(a, h)
	a.numbers[0] = 0
	err = a.check(h.lib.prefixDropSession(a, h.address, session, &a.numbers[0]))
	return a.numbers[0], err
}

// SetPrefixPriority sets the priority and the time to live of the query's published tokens, as in PrefixOptions, whatever
// they had. Longer prefixes keep theirs after these tokens.
func (c *Cache) SetPrefixPriority(query PrefixQuery, priority int, timeToLive int64) error {
	return c.withQuery("Cache.SetPrefixPriority", query, func(l *library, a *arena, cache uintptr) Status {
		return l.prefixSetPriority(a, cache, &a.query, narrow(priority), timeToLive)
	})
}

// SetSessionPriority sets them for all that DropSession would drop.
func (c *Cache) SetSessionPriority(session uint64, priority int, timeToLive int64) error {
	a, h, err := c.enter("Cache.SetSessionPriority")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.prefixSetSessionPriority(a, h.address, session, narrow(priority), timeToLive))
}

// PinPrefix keeps the pages of a published prefix from being evicted, and says which prefix that is: the one that
// MatchPrefix finds with AllowAll.
func (c *Cache) PinPrefix(query PrefixQuery) (pin PrefixPin, hit PrefixHit, err error) {
	err = c.withQuery("Cache.PinPrefix", query, func(l *library, a *arena, cache uintptr) Status {
		a.id = 0
		status := l.prefixPin(a, cache, &a.query, &a.hit, &a.id)
		pin, hit = PrefixPin(a.id), a.hit.found(status)
		return status
	})
	return pin, hit, err
}

// UnpinPrefix ends a pin. Pages that nothing else holds can be evicted again.
func (c *Cache) UnpinPrefix(pin PrefixPin) error {
	a, h, err := c.enter("Cache.UnpinPrefix")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.prefixUnpin(a, h.address, uint64(pin)))
}

// SetTime tells the cache the time, in any unit, because the library reads no clock. It starts at 0 and never goes back.
// Give all ranks of an engine the same times.
func (c *Cache) SetTime(now int64) error {
	a, h, err := c.enter("Cache.SetTime")
	if err != nil {
		return err
	}
	defer leave(a, h)
	return a.check(h.lib.cacheSetTime(a, h.address, now))
}

// withQuery makes a call that reads a.query. Its slices are pinned during the call.
func (c *Cache) withQuery(function string, query PrefixQuery, call func(*library, *arena, uintptr) Status) error {
	a, h, err := c.enter(function)
	if err != nil {
		return err
	}
	defer leave(a, h)
	q := &a.query
	q.init()
	q.flags, q.salt, q.saltBegin = flag(query.AllowAll, kvcPrefixAllowAll), query.Salt, query.SaltBegin
	q.tokens, q.numTokens = address(a, query.Tokens), int64(len(query.Tokens))
	q.adapter, q.adapterBytes = address(a, query.Adapter), int64(len(query.Adapter))
	begins, lengths, hashes := mediaArrays(query.Media)
	q.mediaBegins, q.mediaTokens, q.mediaHashes = address(a, begins), address(a, lengths), address(a, hashes)
	q.numMedia = int64(len(begins))
	a.hit.init()
	status := call(h.lib, a, h.address)
	q.init() // it no longer points to the caller's slices
	return a.check(status)
}

// found is the hit of a call that succeeded.
func (h *kvcPrefixHit) found(status Status) PrefixHit {
	if status != kvcOk {
		return PrefixHit{}
	}
	return PrefixHit{Tokens: h.tokens, CopiedTokens: h.copiedTokens, KnownTokens: h.knownTokens, LimitedBy: int(h.limitedBy),
		LoadTokens: h.loadTokens, LoadNs: h.loadNs, TokenNs: h.tokenNs, TierTokens: h.tierTokens}
}
