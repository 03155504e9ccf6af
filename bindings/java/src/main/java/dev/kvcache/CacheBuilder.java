package dev.kvcache;

import java.lang.ref.Reference;
import java.util.ArrayList;
import java.util.List;

/** The settings of a {@link Cache}. Layers and one of the capacities are required; the rest has defaults. */
public final class CacheBuilder {
  private Context context;
  private List<Layer> layers = List.of();
  private List<Group> groups = List.of();
  private int flags;
  private Cache.SharePrefixes sharePrefixes = Cache.SharePrefixes.WHERE_IT_PAYS;
  private int pageSize;
  private int maxSequences;
  private int maxBatchTokens;
  private int maxOpenForwards;
  private long rollbackTokens;
  private long capacityTokens;
  private long capacityPages;
  private long capacityBytes;
  private int maxTreeNodes;
  private int maxCheckpoints;
  private int maxDraftStates;
  private int tpSize;
  private int tpRank;
  private boolean tablesOnly;
  private long prefixPages;
  private Cache.PrefixPolicy prefixPolicy = Cache.PrefixPolicy.REUSE;
  private long prefixCheckpoints;
  private byte[] fingerprint;
  private long eventsCapacity;
  private long eventsTierPages;

  CacheBuilder() {}

  /** The context in which to compute. Without it the cache makes its own. */
  public CacheBuilder context(Context where) {
    context = where;
    return this;
  }

  public CacheBuilder layers(List<Layer> all) {
    layers = all == null ? null : List.copyOf(all);
    return this;
  }

  public CacheBuilder layers(Layer... all) {
    return layers(all == null ? null : List.of(all));
  }

  /** Without groups there is one, a full one. */
  public CacheBuilder groups(Group... all) {
    groups = all == null ? List.of() : List.of(all);
    return this;
  }

  /** Tokens a page; 0 = 16. */
  public CacheBuilder pageSize(int tokens) {
    pageSize = tokens;
    return this;
  }

  /** Tokens that a full group holds. At most one of the three capacities. */
  public CacheBuilder capacityTokens(long tokens) {
    capacityTokens = tokens;
    return this;
  }

  public CacheBuilder capacityPages(long pages) {
    capacityPages = pages;
    return this;
  }

  /** All pools of all layers together have at most this many bytes. */
  public CacheBuilder capacityBytes(long bytes) {
    capacityBytes = bytes;
    return this;
  }

  /** 0 = 64. */
  public CacheBuilder maxSequences(int n) {
    maxSequences = n;
    return this;
  }

  /** Tokens of one step; 0 = 2048. */
  public CacheBuilder maxBatchTokens(int n) {
    maxBatchTokens = n;
    return this;
  }

  /** Steps that are open at once; 0 = 2. */
  public CacheBuilder maxOpenForwards(int n) {
    maxOpenForwards = n;
    return this;
  }

  /** Tokens kept before every window, so that as many can be dropped; 0 = maxTreeNodes. */
  public CacheBuilder rollbackTokens(long n) {
    rollbackTokens = n;
    return this;
  }

  /** Uncommitted tree nodes of a sequence; 0 = 64. */
  public CacheBuilder maxTreeNodes(int n) {
    maxTreeNodes = n;
    return this;
  }

  /** Checkpoints of a sequence, with a recurrent group; 0 = 1. */
  public CacheBuilder maxCheckpoints(int n) {
    maxCheckpoints = n;
    return this;
  }

  /** The first nodes of an uncommitted tree whose recurrent states are kept, so that each of them can be committed; at most 63. */
  public CacheBuilder maxDraftStates(int n) {
    maxDraftStates = n;
    return this;
  }

  /**
   * Ranks of tensor parallelism, each with a cache of its own for its share of the kv heads; 0 = 1. Ranks store objects of their own in
   * tiers, even with one fingerprint. A transfer may go to caches of another tpSize.
   */
  public CacheBuilder tpSize(int n) {
    tpSize = n;
    return this;
  }

  /** The rank of this cache, below tpSize. */
  public CacheBuilder tpRank(int rank) {
    tpRank = rank;
    return this;
  }

  /** Keeps no tokens before windows. */
  public CacheBuilder noRollback() {
    flags |= Abi.KVC_CACHE_NO_ROLLBACK;
    return this;
  }

  /** Sequences may get streaming windows ({@link Cache#setStreaming}). */
  public CacheBuilder streaming() {
    flags |= Abi.KVC_CACHE_STREAMING;
    return this;
  }

  /** A query's output has the same bits whatever else is in the batch. */
  public CacheBuilder deterministic() {
    flags |= Abi.KVC_CACHE_DETERMINISTIC;
    return this;
  }

  /** Tokens that were published stay findable after their sequence is removed ({@link Cache#publishPrefix}). */
  public CacheBuilder prefixIndex() {
    flags |= Abi.KVC_CACHE_PREFIX_INDEX;
    return this;
  }

  /** Most pages of tokens that the prefix index holds in each group; 0 = the pages of the largest group. */
  public CacheBuilder prefixPages(long n) {
    prefixPages = n;
    return this;
  }

  /** Most positions whose recurrent states the prefix index holds; 0 = maxSequences. */
  public CacheBuilder prefixCheckpoints(long n) {
    prefixCheckpoints = n;
    return this;
  }

  /** What the prefix index evicts first, among tokens of equal priority. */
  public CacheBuilder prefixPolicy(Cache.PrefixPolicy policy) {
    prefixPolicy = policy;
    return this;
  }

  /** Clears pages before they are given to a sequence, so that none sees bytes of another one. */
  public CacheBuilder zeroOnFree() {
    flags |= Abi.KVC_CACHE_ZERO_ON_FREE;
    return this;
  }

  /** 32 bytes that name the model: weights, quantisation, tokenizer. Without them there are no events. */
  public CacheBuilder fingerprint(byte[] bytes) {
    fingerprint = PageKeys.key("CacheBuilder.fingerprint", "fingerprint", bytes);
    return this;
  }

  /** Events of the prefix index that the cache keeps for readers; 0 = none. */
  public CacheBuilder eventsCapacity(long n) {
    eventsCapacity = n;
    return this;
  }

  /** Pages in tiers of which events tell; 0 = events tell only of the pools. */
  public CacheBuilder eventsTierPages(long n) {
    eventsTierPages = n;
    return this;
  }

  public CacheBuilder sharePrefixes(Cache.SharePrefixes when) {
    sharePrefixes = when;
    return this;
  }

  /** Page ids and tables, but no K and V: for engines with pools and kernels of their own ({@link Cache#takeCopies}). */
  public CacheBuilder tablesOnly() {
    tablesOnly = true;
    return this;
  }

  /** Creates the cache: it reserves all its memory, which pages take when they are first written. */
  public Cache build() {
    List<Object> kept = new ArrayList<>();
    return call("CacheBuilder.build", kept, (where, arena, config) -> {
      NativeCalls calls = where.calls;
      arena.check(calls.cacheCreate(where.address, config.address, arena.numbers.address, arena.error.address));
      Handle handle = new Handle(calls, arena.numbers.getLong(0), calls::cacheDestroy, List.copyOf(kept), HostPool.share(where.pool()));
      return new Cache(handle, pageSize == 0 ? 16 : pageSize);
    });
  }

  /** What {@link #build} would allocate for a group or for {@link Cache#WHOLE_CACHE}, or why it would refuse. */
  public Estimate estimate(int group) {
    return call("CacheBuilder.estimate", new ArrayList<>(), (where, arena, config) -> {
      Mem e = arena.struct(Abi.Estimate.SIZE);
      arena.check(where.calls.cacheEstimate(where.address, config.address, group, e.address, arena.error.address));
      return new Estimate(e.getLong(Abi.Estimate.NUM_PAGES), e.getLong(Abi.Estimate.PAGE_BYTES),
          e.getLong(Abi.Estimate.TOKEN_BYTES), e.getLong(Abi.Estimate.STORAGE_BYTES),
          e.getLong(Abi.Estimate.BOOKKEEPING_BYTES), e.getLong(Abi.Estimate.SCRATCH_BYTES));
    });
  }

  private interface Use<T> {
    T with(Handle context, Arena arena, Mem config);
  }

  private <T> T call(String function, List<Object> kept, Use<T> use) {
    Context where = context != null ? context : Context.create();
    try {
      Arena arena = where.enter(function);
      try {
        return use.with(where.handle(), arena, write(function, arena, kept));
      } finally {
        where.leave(arena);
        Reference.reachabilityFence(kept);
      }
    } finally {
      if (context == null) {
        where.close(); // the cache keeps what it needs of it
      }
    }
  }

  private Mem write(String function, Arena arena, List<Object> kept) {
    Checks.given(function, "layers", layers);
    Mem all = arena.alloc((long) layers.size() * Abi.LayerConfig.SIZE);
    for (int i = 0; i < layers.size(); i++) {
      layers.get(i).write(arena, new Mem(all.buffer, all.at + i * Abi.LayerConfig.SIZE, all.address - all.at), i, kept);
    }
    Mem kinds = arena.alloc((long) groups.size() * Abi.GroupConfig.SIZE);
    for (int i = 0; i < groups.size(); i++) {
      groups.get(i).write(kinds, i * Abi.GroupConfig.SIZE);
    }
    Mem c = arena.struct(Abi.CacheConfig.SIZE);
    c.putInt(Abi.CacheConfig.FLAGS, flags | (sharePrefixes == null ? 0 : sharePrefixes.flag));
    c.putLong(Abi.CacheConfig.LAYERS, all.address);
    c.putInt(Abi.CacheConfig.NUM_LAYERS, layers.size());
    c.putLong(Abi.CacheConfig.GROUPS, groups.isEmpty() ? 0 : kinds.address);
    c.putInt(Abi.CacheConfig.NUM_GROUPS, groups.size());
    c.putInt(Abi.CacheConfig.PAGE_SIZE, pageSize);
    c.putInt(Abi.CacheConfig.MAX_SEQUENCES, maxSequences);
    c.putInt(Abi.CacheConfig.MAX_BATCH_TOKENS, maxBatchTokens);
    c.putInt(Abi.CacheConfig.MAX_OPEN_FORWARDS, maxOpenForwards);
    c.putLong(Abi.CacheConfig.ROLLBACK_TOKENS, rollbackTokens);
    c.putLong(Abi.CacheConfig.CAPACITY_TOKENS, capacityTokens);
    c.putLong(Abi.CacheConfig.CAPACITY_PAGES, capacityPages);
    c.putLong(Abi.CacheConfig.CAPACITY_BYTES, capacityBytes);
    c.putInt(Abi.CacheConfig.MAX_TREE_NODES, maxTreeNodes);
    c.putInt(Abi.CacheConfig.MAX_CHECKPOINTS, maxCheckpoints);
    c.putInt(Abi.CacheConfig.MAX_DRAFT_STATES, maxDraftStates);
    c.putInt(Abi.CacheConfig.TP_SIZE, tpSize);
    c.putInt(Abi.CacheConfig.TP_RANK, tpRank);
    c.putInt(Abi.CacheConfig.STORAGE, tablesOnly ? Abi.KVC_STORAGE_NONE : Abi.KVC_STORAGE_OWN);
    c.putLong(Abi.CacheConfig.PREFIX_PAGES, prefixPages);
    c.putInt(Abi.CacheConfig.PREFIX_POLICY, prefixPolicy == null ? 0 : prefixPolicy.value);
    c.putLong(Abi.CacheConfig.PREFIX_CHECKPOINTS, prefixCheckpoints);
    c.putLong(Abi.CacheConfig.FINGERPRINT, arena.bytes(fingerprint));
    c.putLong(Abi.CacheConfig.EVENTS_CAPACITY, eventsCapacity);
    c.putLong(Abi.CacheConfig.EVENTS_TIER_PAGES, eventsTierPages);
    return c;
  }
}
