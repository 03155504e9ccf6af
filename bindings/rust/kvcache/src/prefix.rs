//! The prefix index: what a cache remembers of sequences that are gone.
use crate::cache::{Cache, Seq, Stream};
use crate::config::wide;
use crate::error::{check, Result};
use crate::keys::{MediaArrays, MediaSpan};
use crate::sys;

/// Tokens, and what their K and V follow from besides the tokens before them.
///
/// ```
/// # use kvcache::PrefixQuery;
/// # let (prompt, tenant) = (vec![1, 2, 3], 7);
/// let query = PrefixQuery { salt: tenant, ..PrefixQuery::new(&prompt) };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixQuery<'a> {
    /// Any numbers. They are borrowed for the time of a call.
    pub tokens: &'a [i32],
    /// Tokens under different salts never match; 0 = no salt.
    pub salt: u64,
    /// The salt holds from the page that contains this token on, so tenants can share the tokens before it.
    pub salt_begin: usize,
    /// Name of a LoRA adapter or the like: tokens under different adapters never match; empty: none.
    pub adapter: &'a [u8],
    /// By position, without overlap. Tokens match up to the first difference of the media. Spans may lie beyond the tokens.
    pub media: &'a [MediaSpan],
    /// [`Cache::match_prefix`] and [`Cache::attach_prefix`] may find all tokens. By default they find one less at most,
    /// because an engine needs the logits of the last token.
    pub allow_all: bool,
}

/// What the index holds of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixHit {
    /// The longest prefix that every group can serve.
    pub tokens: usize,
    /// Of these, the tokens in a last page that is not full. [`Cache::attach_prefix`] copies that page.
    pub copied_tokens: usize,
    /// Tokens that were published in this order, whatever is left of their pages.
    pub known_tokens: usize,
    /// The group because of which `tokens` is below what was searched for and known.
    pub limited_by: Option<usize>,
    /// With tiers: what `tokens` would be after [`Cache::load_prefix`], without tokens that are faster to compute. Else
    /// `tokens`.
    pub load_tokens: usize,
    /// With tiers: how long that load takes in nanoseconds, as the tiers measured it. 0 = nothing to load, or not measured.
    pub load_ns: u64,
    /// How long it takes to compute one token in nanoseconds, as the cache measured it in forwards on the CPU. 0 = not
    /// measured.
    pub token_ns: u64,
    /// How many tokens after `tokens` each tier has, in the order in which the tiers were added. Only
    /// [`Cache::match_prefix`] and [`Cache::load_prefix`] search tiers.
    pub tier_tokens: [usize; 8],
}

/// How long published tokens should stay, and whose they are. The default is the lowest priority, no session and no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixOptions {
    /// 0 to 100. Prefixes of lower priority are evicted first.
    pub priority: u8,
    /// [`Cache::drop_session`] drops what one session alone published; 0 = no session.
    pub session: u64,
    /// The tokens are expired so long after now, in the unit of [`Cache::set_time`]. They are still found, but evicted before
    /// all others. 0 = no limit.
    pub time_to_live: u64,
    /// No tier stores what this publish adds.
    pub keep_private: bool,
}

/// What a publish did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixPublished {
    /// Tokens of the query that the index holds now: fewer than all if it is full of pages in use.
    pub known_tokens: usize,
    /// Pages that the index did not hold before, in all groups.
    pub pages_added: usize,
    /// Pages of the sequence that became free, because the index had others with the same tokens.
    pub pages_freed: usize,
}

/// Id of a pin. The pin lives until [`Cache::unpin_prefix`] or [`Cache::clear`], whatever happens to the id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PrefixPin(pub u64);

impl<'a> PrefixQuery<'a> {
    pub const fn new(tokens: &'a [i32]) -> Self {
        Self { tokens, salt: 0, salt_begin: 0, adapter: &[], media: &[], allow_all: false }
    }

    pub(crate) fn raw(&self) -> RawQuery {
        let media = MediaArrays::new(self.media);
        let query = sys::kvc_prefix_query {
            flags: if self.allow_all { sys::KVC_PREFIX_ALLOW_ALL } else { 0 },
            tokens: self.tokens.as_ptr(),
            num_tokens: wide(self.tokens.len()),
            salt: self.salt,
            salt_begin: wide(self.salt_begin),
            adapter: self.adapter.as_ptr(),
            adapter_bytes: wide(self.adapter.len()),
            num_media: wide(self.media.len()),
            media_begins: media.begins.as_ptr(),
            media_tokens: media.tokens.as_ptr(),
            media_hashes: media.hashes.as_ptr().cast(),
            ..Default::default()
        };
        RawQuery { query, _media: media }
    }
}

/// A query for C, and the arrays of spans that it points to.
pub(crate) struct RawQuery {
    pub query: sys::kvc_prefix_query,
    _media: MediaArrays,
}

impl From<sys::kvc_prefix_hit> for PrefixHit {
    fn from(hit: sys::kvc_prefix_hit) -> Self {
        Self {
            tokens: hit.tokens as usize,
            copied_tokens: hit.copied_tokens as usize,
            known_tokens: hit.known_tokens as usize,
            limited_by: usize::try_from(hit.limited_by).ok(),
            load_tokens: hit.load_tokens as usize,
            load_ns: hit.load_ns as u64,
            token_ns: hit.token_ns as u64,
            tier_tokens: hit.tier_tokens.map(|tokens| tokens as usize),
        }
    }
}

/// The prefix index of a cache with [`CacheConfig::prefix_index`](crate::CacheConfig::prefix_index); without it every call
/// but `set_time` is `UNSUPPORTED`. The loop of an engine:
///
/// ```
/// # use kvcache::*;
/// # fn compute(cache: &Cache, sequence: Seq, tokens: &[i32]) -> Result<()> {
/// #     let (numbers, mut out) = (vec![0.5f32; tokens.len() * 16], vec![0f32; tokens.len() * 16]);
/// #     let shape = [tokens.len(), 1, 16];
/// #     let step = cache.begin(&Batch::new(&[sequence], &[tokens.len()]), Stream::NONE)?;
/// #     let tensor = Tensor::new(&numbers, &shape)?;
/// #     step.attend(0, &Attend::new(tensor, tensor, tensor, TensorMut::new(&mut out, &shape)?))?;
/// #     step.end()
/// # }
/// # fn main() -> Result<()> {
/// # let context = Context::new(ContextConfig::new())?;
/// # let layers = vec![Layer { q_heads: 1, kv_heads: 1, head_dim: 16, ..Layer::default() }];
/// # let config = CacheConfig { layers, capacity: Capacity::Tokens(256), page_size: 4, ..CacheConfig::default() };
/// let cache = Cache::new(&context, &CacheConfig { prefix_index: true, ..config })?;
/// for prompt in [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 7, 8]] {
///     let mut tokens = prompt.to_vec();
///     let (sequence, hit) = cache.attach_prefix(&PrefixQuery::new(&tokens), Stream::NONE)?;
///     assert_eq!(hit.tokens, if prompt[4] == 7 { 4 } else { 0 }); // the second prompt begins like the first one
///     compute(&cache, sequence, &tokens[hit.tokens..])?; // a step that appends the rest: at least one token
///     cache.publish_prefix(sequence, &PrefixQuery::new(&tokens), &PrefixOptions::default())?; // others find the prompt now
///     tokens.push(9); // the answer
///     compute(&cache, sequence, &[9])?;
///     cache.publish_prefix(sequence, &PrefixQuery::new(&tokens), &PrefixOptions::default())?; // the next request begins with it
///     cache.remove(&[sequence])?; // the pages stay, until they are needed
/// }
/// # Ok(())
/// # }
/// ```
impl Cache {
    /// Says what [`Cache::attach_prefix`] would find, and changes nothing.
    pub fn match_prefix(&self, query: &PrefixQuery<'_>) -> Result<PrefixHit> {
        let mut hit = sys::kvc_prefix_hit::default();
        // SAFETY: the tokens are borrowed by the query, `num_tokens` of them.
        check(|error| unsafe { sys::kvc_prefix_match(self.raw(), &query.raw().query, &mut hit, error) })?;
        Ok(hit.into())
    }

    /// Makes a new sequence that holds the longest prefix of the query that every group can serve. Whole pages are shared, and
    /// a part of a page is copied. If nothing is found, the sequence is empty.
    pub fn attach_prefix(&self, query: &PrefixQuery<'_>, stream: Stream) -> Result<(Seq, PrefixHit)> {
        let (mut sequence, mut hit) = (0, sys::kvc_prefix_hit::default());
        // SAFETY: the tokens are borrowed by the query, `num_tokens` of them; one sequence.
        check(|error| unsafe {
            sys::kvc_prefix_attach(self.raw(), &query.raw().query, stream.raw(), &mut hit, &mut sequence, error)
        })?;
        Ok((Seq(sequence), hit.into()))
    }

    /// Makes the first tokens of a sequence findable: those of the query, which must be the tokens that were appended to it.
    /// The index shares its pages, and copies nothing. The call can be repeated while the sequence grows.
    pub fn publish_prefix(
        &self,
        sequence: Seq,
        query: &PrefixQuery<'_>,
        options: &PrefixOptions,
    ) -> Result<PrefixPublished> {
        let options = sys::kvc_prefix_options {
            priority: options.priority.into(),
            session: options.session,
            time_to_live: time(options.time_to_live),
            flags: if options.keep_private { sys::KVC_PREFIX_KEEP_PRIVATE } else { 0 },
            ..Default::default()
        };
        let mut published = sys::kvc_prefix_published::default();
        // SAFETY: the tokens are borrowed by the query, `num_tokens` of them.
        check(|error| unsafe {
            sys::kvc_prefix_publish(self.raw(), sequence.0, &query.raw().query, &options, &mut published, error)
        })?;
        Ok(PrefixPublished {
            known_tokens: published.known_tokens as usize,
            pages_added: published.pages_added as usize,
            pages_freed: published.pages_freed as usize,
        })
    }

    /// Forgets every published prefix that begins with the query's tokens: their last page and all that continues it. Without
    /// tokens it forgets all that was published with the salt and the adapter from the first page on. Returns how many pages the index gave
    /// back. Sequences keep their pages.
    pub fn drop_prefix(&self, query: &PrefixQuery<'_>) -> Result<usize> {
        let mut pages = 0;
        // SAFETY: the tokens are borrowed by the query, `num_tokens` of them.
        check(|error| unsafe { sys::kvc_prefix_drop(self.raw(), &query.raw().query, &mut pages, error) })?;
        Ok(pages as usize)
    }

    /// Forgets what this session alone published. Returns how many pages the index gave back.
    pub fn drop_session(&self, session: u64) -> Result<usize> {
        let mut pages = 0;
        // SAFETY: a live cache.
        check(|error| unsafe { sys::kvc_prefix_drop_session(self.raw(), session, &mut pages, error) })?;
        Ok(pages as usize)
    }

    /// Sets the priority and the time to live of the query's published tokens, as in [`PrefixOptions`], whatever they had.
    /// Longer prefixes keep theirs after these tokens.
    pub fn set_prefix_priority(&self, query: &PrefixQuery<'_>, priority: u8, time_to_live: u64) -> Result<()> {
        let (query, priority) = (query.raw(), priority.into());
        // SAFETY: the tokens are borrowed by the query, `num_tokens` of them.
        check(|error| unsafe {
            sys::kvc_prefix_set_priority(self.raw(), &query.query, priority, time(time_to_live), error)
        })
    }

    /// Sets them for all that [`Cache::drop_session`] would drop.
    pub fn set_session_priority(&self, session: u64, priority: u8, time_to_live: u64) -> Result<()> {
        // SAFETY: a live cache.
        check(|error| unsafe {
            sys::kvc_prefix_set_session_priority(self.raw(), session, priority.into(), time(time_to_live), error)
        })
    }

    /// Keeps the pages of a published prefix from being evicted, and says which prefix that is: the one that
    /// [`Cache::match_prefix`] finds with `allow_all`.
    pub fn pin_prefix(&self, query: &PrefixQuery<'_>) -> Result<(PrefixPin, PrefixHit)> {
        let (mut pin, mut hit) = (0, sys::kvc_prefix_hit::default());
        // SAFETY: the tokens are borrowed by the query, `num_tokens` of them.
        check(|error| unsafe { sys::kvc_prefix_pin(self.raw(), &query.raw().query, &mut hit, &mut pin, error) })?;
        Ok((PrefixPin(pin), hit.into()))
    }

    /// Ends a pin. Pages that nothing else holds can be evicted again.
    pub fn unpin_prefix(&self, pin: PrefixPin) -> Result<()> {
        // SAFETY: a live cache.
        check(|error| unsafe { sys::kvc_prefix_unpin(self.raw(), pin.0, error) })
    }

    /// Tells the cache the time, in any unit, because the library reads no clock. It starts at 0 and never goes back. Give all
    /// ranks of an engine the same times.
    pub fn set_time(&self, now: u64) -> Result<()> {
        // SAFETY: a live cache.
        check(|error| unsafe { sys::kvc_cache_set_time(self.raw(), time(now), error) })
    }
}

/// The library's times are signed. A later one is the last one.
pub(crate) fn time(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
