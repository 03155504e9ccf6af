package dev.kvcache;

import java.lang.ref.Cleaner;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Page pools for every layer of a model, and the sequences in them. A sequence is an id, a long that is never 0. Using a stale id
 * is an error. Any thread may call the methods.
 *
 * <p>Close a cache when it is no longer needed. The garbage collector releases an unreachable cache, but it never removes a
 * sequence or ends a step, because page ids would depend on it.
 */
public final class Cache implements AutoCloseable {
  /** The group of {@link #stats} and {@link CacheBuilder#estimate} that stands for all groups. */
  public static final int WHOLE_CACHE = -1;

  final Handle handle;
  final int pageSize;
  private final Cleaner.Cleanable cleanable;

  Cache(Handle handle, int pageSize) {
    this.handle = handle;
    this.pageSize = pageSize;
    cleanable = Context.CLEANER.register(this, handle::close);
  }

  public static CacheBuilder builder() {
    return new CacheBuilder();
  }

  /** What the prefix index evicts first, among tokens of equal priority. */
  public enum PrefixPolicy {
    /**
     * The least recently used. Each of the last three uses lets a prefix live longer, so that prefixes which were used once go
     * first.
     */
    REUSE(Abi.KVC_PREFIX_POLICY_REUSE),
    /** The least recently used. */
    LRU(Abi.KVC_PREFIX_POLICY_LRU);

    final int value;

    PrefixPolicy(int value) {
      this.value = value;
    }
  }

  /** When rows of a step that begin with the same pages are attended together. */
  public enum SharePrefixes {
    /** Where a cost model expects a gain. */
    WHERE_IT_PAYS(0),
    NEVER(Abi.KVC_CACHE_NO_PREFIX_SHARING),
    ALWAYS(Abi.KVC_CACHE_SHARE_ALL_PREFIXES);

    final int flag;

    SharePrefixes(int flag) {
      this.flag = flag;
    }
  }

  Arena enter(String function) {
    if (!handle.enter()) {
      throw KvcacheException.misuse(Status.NULL_ARGUMENT, function + ": the Cache is closed");
    }
    return Arena.take(handle.calls);
  }

  void leave(Arena arena) {
    arena.giveBack();
    handle.leave();
  }

  /** A line for people: how many sequences there are, and how many pages are used. It walks the page tables. */
  @Override
  public String toString() {
    try {
      Stats stats = stats();
      return "Cache(sequences=" + stats.sequences() + ", pagesUsed=" + stats.pagesUsed() + ", pagesTotal=" + stats.pagesTotal() + ")";
    } catch (KvcacheException e) {
      return "Cache(" + (handle.isClosed() ? "closed" : e.getMessage()) + ")";
    }
  }

  /** A call with n ids that fills or reads other arrays. */
  interface Call {
    int with(NativeCalls calls, Arena arena, long n);
  }

  private void run(String function, long[] sequences, Call call) {
    Arena arena = enter(function);
    try {
      Checks.given(function, "sequences", sequences);
      arena.check(call.with(handle.calls, arena, sequences.length));
    } finally {
      leave(arena);
    }
  }

  // ---- sequences -----------------------------------------------------------------------------------------------------

  /** An empty sequence; it takes no page. */
  public long add() {
    Arena arena = enter("Cache.add");
    try {
      arena.check(handle.calls.seqAdd(handle.address, 1, arena.numbers.address, arena.error.address));
      return arena.numbers.getLong(0);
    } finally {
      leave(arena);
    }
  }

  /** n empty sequences, or none. */
  public long[] add(int n) {
    return filled("Cache.add", n, (calls, arena, out) -> calls.seqAdd(handle.address, n, out, arena.error.address));
  }

  private interface Fill {
    int with(NativeCalls calls, Arena arena, long out);
  }

  private long[] filled(String function, int n, Fill fill) {
    Arena arena = enter(function);
    try {
      Mem out = arena.alloc(8L * Math.max(n, 1));
      arena.check(fill.with(handle.calls, arena, out.address));
      return copy(out, 0, n);
    } finally {
      leave(arena);
    }
  }

  private static long[] copy(Mem from, int offset, int n) {
    long[] values = new long[Math.max(n, 0)];
    for (int i = 0; i < n; i++) {
      values[i] = from.getLong(offset + 8 * i);
    }
    return values;
  }

  /** Removes sequences, all or none, and frees every page that no other one shares. */
  public void remove(long... sequences) {
    run("Cache.remove", sequences, (calls, arena, n) ->
        calls.seqRemove(handle.address, n, arena.longs(sequences), arena.error.address));
  }

  /** A child of the parent; it shares every whole page. */
  public long fork(long parent) {
    return fork(new long[] {parent}, null)[0];
  }

  /** A child of each parent; a parent may occur often. */
  public long[] fork(long... parents) {
    return fork(parents, null);
  }

  /** A child of each parent that holds its first positions[i] tokens; -1 = all of them. Without positions: all. */
  public long[] fork(long[] parents, long[] positions) {
    Checks.given("Cache.fork", "parents", parents);
    if (positions != null) {
      Checks.same("Cache.fork", "parents", parents.length, "positions", positions.length);
    }
    return filled("Cache.fork", parents.length, (calls, arena, out) -> calls.seqFork(handle.address, parents.length,
        arena.longs(parents), arena.longs(positions), out, 0, arena.error.address));
  }

  /** Drops the tokens of each sequence from lengths[i] on. */
  public void truncate(long[] sequences, long[] lengths) {
    run("Cache.truncate", sequences, (calls, arena, n) -> {
      Checks.same("Cache.truncate", "sequences", sequences.length, "lengths", Checks.given("Cache.truncate", "lengths", lengths).length);
      return calls.seqTruncate(handle.address, n, arena.longs(sequences), arena.longs(lengths), arena.error.address);
    });
  }

  public void truncate(long sequence, long length) {
    truncate(new long[] {sequence}, new long[] {length});
  }

  /** A sequence's length in tokens, without those of open steps and uncommitted nodes. */
  public long length(long sequence) {
    Arena arena = enter("Cache.length");
    try {
      Mem numbers = arena.numbers;
      numbers.putLong(0, sequence);
      arena.check(handle.calls.seqLengths(handle.address, 1, numbers.address, numbers.address + 8, arena.error.address));
      return numbers.getLong(8);
    } finally {
      leave(arena);
    }
  }

  public long[] lengths(long... sequences) {
    return longsOf("Cache.lengths", sequences, (calls, arena, in, out) ->
        calls.seqLengths(handle.address, sequences.length, in, out, arena.error.address));
  }

  /** Tokens that each sequence, alone, could append in one step now. */
  public long[] maxAppend(long... sequences) {
    return longsOf("Cache.maxAppend", sequences, (calls, arena, in, out) ->
        calls.seqMaxAppend(handle.address, sequences.length, in, out, arena.error.address));
  }

  /**
   * Pages of a group that the removal of each sequence, alone, would make available: those that no other sequence, pin, save
   * or load holds. A page that the prefix index holds too counts, because it can be evicted then.
   */
  public long[] exclusivePages(int group, long... sequences) {
    return longsOf("Cache.exclusivePages", sequences, (calls, arena, in, out) ->
        calls.seqExclusivePages(handle.address, group, sequences.length, in, out, arena.error.address));
  }

  /** Lengths of the encoder sequences in a cross group. */
  public long[] encoderLengths(int group, long... sequences) {
    return longsOf("Cache.encoderLengths", sequences, (calls, arena, in, out) ->
        calls.seqEncoderLengths(handle.address, group, sequences.length, in, out, arena.error.address));
  }

  private interface Map {
    int with(NativeCalls calls, Arena arena, long in, long out);
  }

  private long[] longsOf(String function, long[] sequences, Map map) {
    Checks.given(function, "sequences", sequences);
    return filled(function, sequences.length, (calls, arena, out) -> map.with(calls, arena, arena.longs(sequences), out));
  }

  /**
   * Page ids of a sequence in a group: entry i holds positions [i * pageSize, (i + 1) * pageSize); -1 where the page was
   * freed, because it left a window.
   */
  public int[] pages(long sequence, int group) {
    Arena arena = enter("Cache.pages");
    try {
      long count = arena.numbers.address;
      arena.check(handle.calls.seqPages(handle.address, sequence, group, 0, 0, count, arena.error.address));
      for (;;) {
        int capacity = (int) arena.numbers.getLong(0);
        Mem pages = arena.alloc(4L * Math.max(capacity, 1));
        int status = handle.calls.seqPages(handle.address, sequence, group, pages.address, capacity, count, arena.error.address);
        if (status == Abi.KVC_ERROR_BUFFER_TOO_SMALL) {
          continue; // it has grown meanwhile
        }
        arena.check(status);
        int n = (int) arena.numbers.getLong(0);
        if (n > capacity) {
          continue; // a capacity of 0 is never too small
        }
        int[] ids = new int[n];
        for (int i = 0; i < n; i++) {
          ids[i] = pages.getInt(4 * i);
        }
        return ids;
      }
    } finally {
      leave(arena);
    }
  }

  /** Positions at which fork and truncate work in every group: before and after are -1 where there is none. */
  public record Nearest(long before, long after) {}

  /** The positions nearest to the given one, at or below it and at or above it, where fork and truncate work. */
  public Nearest nearestPosition(long sequence, long position) {
    Arena arena = enter("Cache.nearestPosition");
    try {
      long out = arena.numbers.address;
      arena.check(handle.calls.seqNearestPosition(handle.address, sequence, position, out, out + 8, arena.error.address));
      return new Nearest(arena.numbers.getLong(0), arena.numbers.getLong(8));
    } finally {
      leave(arena);
    }
  }

  /** Chooses which of longrope's factor sets rotates the keys and queries of sequences: the long one, or the short one. */
  public void setRope(boolean longSet, long... sequences) {
    int set = longSet ? Abi.KVC_ROPE_SET_LONG : Abi.KVC_ROPE_SET_SHORT;
    run("Cache.setRope", sequences, (calls, arena, n) ->
        calls.seqSetRope(handle.address, n, arena.longs(sequences), set, arena.error.address));
  }

  /** Keeps the recurrent states that sequences have now. Fork and truncate then work at these lengths later. */
  public void checkpoint(long... sequences) {
    run("Cache.checkpoint", sequences, (calls, arena, n) ->
        calls.seqCheckpoint(handle.address, n, arena.longs(sequences), arena.error.address));
  }

  /** A query sees window keys: the first sinks tokens of its sequence, and the newest ones. 0 and 0 is no window. */
  public record Window(long sinks, long window) {}

  /**
   * Gives sequences a streaming window, so that they can continue without end in bounded memory.
   *
   * @param prefixIsSink the tokens that a sequence holds now become sinks too
   */
  public void setStreaming(Window window, boolean prefixIsSink, long... sequences) {
    run("Cache.setStreaming", sequences, (calls, arena, n) -> {
      Checks.given("Cache.setStreaming", "window", window);
      long[] sinks = new long[sequences.length];
      long[] windows = new long[sequences.length];
      Arrays.fill(sinks, window.sinks());
      Arrays.fill(windows, window.window());
      return calls.seqSetStreaming(handle.address, n, arena.longs(sequences), arena.longs(sinks), arena.longs(windows),
          prefixIsSink ? Abi.KVC_STREAMING_PREFIX_IS_SINK : 0, arena.error.address);
    });
  }

  /** Streaming windows of sequences. */
  public Window[] streaming(long... sequences) {
    Window[] windows = new Window[sequences == null ? 0 : sequences.length];
    run("Cache.streaming", sequences, (calls, arena, n) -> {
      Mem out = arena.alloc(16 * Math.max(n, 1));
      int status = calls.seqGetStreaming(handle.address, n, arena.longs(sequences), out.address, out.address + 8 * n,
          arena.error.address);
      for (int i = 0; i < n; i++) {
        windows[i] = new Window(out.getLong(8 * i), out.getLong(8 * (int) n + 8 * i));
      }
      return status;
    });
    return windows;
  }

  /** Keeps the path to node leaves[i] of each sequence's token tree, and drops its other nodes; -1 = drop all. */
  public void commit(long[] sequences, int[] leaves) {
    run("Cache.commit", sequences, (calls, arena, n) -> {
      Checks.same("Cache.commit", "sequences", sequences.length, "leaves", Checks.given("Cache.commit", "leaves", leaves).length);
      return calls.seqCommit(handle.address, n, arena.longs(sequences), arena.ints(leaves), 0, arena.error.address);
    });
  }

  /** Numbers of uncommitted tree nodes. */
  public int[] treeNodes(long... sequences) {
    int[] nodes = new int[sequences == null ? 0 : sequences.length];
    run("Cache.treeNodes", sequences, (calls, arena, n) -> {
      Mem out = arena.alloc(4 * Math.max(n, 1));
      int status = calls.seqTreeNodes(handle.address, n, arena.longs(sequences), out.address, arena.error.address);
      for (int i = 0; i < n; i++) {
        nodes[i] = out.getInt(4 * i);
      }
      return status;
    });
    return nodes;
  }

  /** Removes every sequence, everything that the prefix index holds, and every pin. */
  public void clear() {
    Arena arena = enter("Cache.clear");
    try {
      arena.check(handle.calls.cacheClear(handle.address, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  // ---- saved sequences ------------------------------------------------------------------------------------------------

  /** A sequence that was loaded, and its token ids; none if they were not saved. */
  public record LoadedSequence(long sequence, int[] tokens) {}

  /** Without token ids. */
  public void save(long sequence, Path path) {
    Saves.save(this, sequence, path, new int[0], 0);
  }

  /**
   * Saves a sequence to a file: K and V of every group, states with their checkpoints, its settings and the ids of its tokens. The
   * file appears whole, or not at all. The sequence is busy meanwhile, so save a fork to go on with it at once.
   */
  public void save(long sequence, Path path, int[] tokens) {
    Saves.save(this, sequence, path, tokens, 0);
  }

  /** With sections of so many bytes, which one checksum covers, and which a load holds at once: a power of two; 0 = 1 MiB. */
  public void save(long sequence, Path path, int[] tokens, long sectionBytes) {
    Saves.save(this, sequence, path, tokens, sectionBytes);
  }

  /** Adds a sequence with the contents of a saved one. It continues with the same bits. */
  public LoadedSequence load(Path path) {
    return Saves.load(this, path);
  }

  // ---- prefix index: what the cache remembers ------------------------------------------------------------------------

  /** Says what {@link #attachPrefix} would find, and changes nothing. All of this needs {@link CacheBuilder#prefixIndex}. */
  public PrefixHit matchPrefix(PrefixQuery query) {
    return Prefixes.match(this, query);
  }

  /** A new sequence, and what the index had for it. */
  public record AttachedPrefix(long sequence, PrefixHit hit) {}

  /**
   * A new sequence that holds the longest prefix of the query that every group can serve. Whole pages are shared, and a part of
   * a page is copied. If nothing is found, the sequence is empty.
   *
   * @throws OutOfPagesException if no page is free for the copy
   */
  public AttachedPrefix attachPrefix(PrefixQuery query) {
    return Prefixes.attach(this, query);
  }

  /** Without options. */
  public PrefixPublished publishPrefix(long sequence, PrefixQuery query) {
    return publishPrefix(sequence, query, PrefixOptions.create());
  }

  /**
   * Makes the first tokens of a sequence findable: those of the query, which must be the tokens that were appended to it. The
   * index shares its pages, and copies nothing. The call can be repeated while the sequence grows.
   */
  public PrefixPublished publishPrefix(long sequence, PrefixQuery query, PrefixOptions options) {
    return Prefixes.publish(this, sequence, query, options);
  }

  /**
   * Forgets every published prefix that begins with the query's tokens: their last page and all that continues it. Without
   * tokens it forgets all that was published with the salt and the adapter from the first page on. Sequences keep their pages.
   *
   * @return how many pages the index gave back
   */
  public long dropPrefix(PrefixQuery query) {
    return Prefixes.drop(this, query);
  }

  /**
   * Forgets what a session alone published.
   *
   * @return how many pages the index gave back
   */
  public long dropSession(long session) {
    return Prefixes.dropSession(this, session);
  }

  /**
   * Sets the priority and the time to live of the query's published tokens, as in {@link PrefixOptions}, whatever they had.
   * Longer prefixes keep theirs after these tokens.
   */
  public void setPrefixPriority(PrefixQuery query, int priority, long timeToLive) {
    Prefixes.setPriority(this, query, priority, timeToLive);
  }

  /** Sets them for all that {@link #dropSession} would drop. */
  public void setSessionPriority(long session, int priority, long timeToLive) {
    Prefixes.setSessionPriority(this, session, priority, timeToLive);
  }

  /** The id of a pin, and the prefix that it keeps. The pin lives until {@link #unpinPrefix} or {@link #clear}. */
  public record PinnedPrefix(long pin, PrefixHit hit) {}

  /** Keeps the pages of a published prefix from being evicted: of the one that matchPrefix finds with allowAll. */
  public PinnedPrefix pinPrefix(PrefixQuery query) {
    return Prefixes.pin(this, query);
  }

  /** Ends a pin. Pages that nothing else holds can be evicted again. */
  public void unpinPrefix(long pin) {
    Prefixes.unpin(this, pin);
  }

  /**
   * Tells the cache the time, in any unit, because the library reads no clock. It starts at 0 and never goes back. Give all ranks
   * of an engine the same times.
   */
  public void setTime(long now) {
    Prefixes.setTime(this, now);
  }

  // ---- tiers: what is kept below the pools ---------------------------------------------------------------------------

  /**
   * Adds a folder that keeps published pages after they were evicted, and after the process has ended. It is below the tiers that
   * were added before. The call reads the names in it. It needs {@link CacheBuilder#prefixIndex} and
   * {@link CacheBuilder#fingerprint}.
   */
  public void addDiskTier(DiskTier tier) {
    Tiers.add(this, tier);
  }

  /**
   * Adds memory of this process that keeps published pages after they were evicted. It is below the tiers that were added before.
   */
  public void addHostTier(HostTier tier) {
    Tiers.add(this, tier);
  }

  /**
   * Starts to move the pages that only this sequence uses to a tier. They are free when {@link LoadJob#poll} or
   * {@link LoadJob#await} has seen the end of the job. Until then the sequence is busy, and suspended then: it keeps its id, its
   * length and its settings. Each page goes to the first tier that takes it, and a host tier never evicts it. A failed or
   * cancelled job is an exception of poll, and the sequence is as it was.
   */
  public LoadJob suspend(long sequence) {
    return Tiers.move(this, false, sequence);
  }

  /**
   * Starts to bring back a suspended sequence, which is usable when the job has ended. It takes all pages at once.
   *
   * @throws OutOfPagesException nothing has changed: try again when others have ended
   */
  public LoadJob resume(long sequence) {
    return Tiers.move(this, true, sequence);
  }

  /** A load that was started, or null if nothing is to be loaded or computing is faster; and what matchPrefix says. */
  public record StartedLoad(LoadJob job, PrefixHit hit) {}

  /**
   * Starts to load what the tiers have of a prefix and the pools lack. {@link #attachPrefix} finds it when the job has ended.
   * While it runs, a load holds one sequence and its pages.
   *
   * @throws OutOfPagesException if the pages for it are not free
   */
  public StartedLoad loadPrefix(PrefixQuery query, LoadOptions options) {
    return Tiers.load(this, query, options);
  }

  /** What a sequence of {@link LoadJob#attach} still waits for; empty: nothing. */
  public java.util.Optional<PendingLoad> pending(long sequence) {
    return Tiers.pending(this, sequence);
  }

  /** Counts pages that were stored and loaded. An engine that shuts down waits until pagesWaiting is 0. */
  public TierTraffic tierTraffic() {
    return Tiers.traffic(this);
  }

  // ---- transfers: sequences to and from other caches -----------------------------------------------------------------

  /**
   * Makes transfers of this cache use UCX, which reaches other processes and machines. It comes before the first transfer. The
   * environment variable {@code KVCACHE_UCX_LIBRARY} names the file of the transport; otherwise the system's loader finds
   * {@code libkvcache_ucx.so.0}.
   *
   * @param transports as {@code UCX_TLS}, "tcp" or "sm,tcp"; empty: what the environment says, or all
   * @param devices as {@code UCX_NET_DEVICES}, "lo" or "mlx5_0:1"; empty: likewise
   */
  public void useUcx(String transports, String devices) {
    Transfers.useUcx(this, transports, devices);
  }

  /**
   * Makes transfers of this cache use NIXL, which reaches other processes and machines. It comes before the first transfer. The
   * environment variable {@code KVCACHE_NIXL_LIBRARY} names the file of the transport; otherwise the system's loader finds
   * {@code libkvcache_nixl.so.0}.
   *
   * @param options "library" (the file of {@code libnixl_capi.so}; otherwise {@code KVCACHE_NIXL_CAPI} names it), "agent", "backend",
   *     and parameters of the backend, such as "engine_config" with "TLS=tcp,NET_DEVICES=eth0". No value has a semicolon
   */
  public void useNixl(java.util.Map<String, String> options) {
    Transfers.useNixl(this, options);
  }

  /**
   * Makes transfers of this cache use another transport: a shared library that fills the table of {@code kvcache_transport.h}. It
   * comes before the first transfer. The library's own code runs, and it stays loaded.
   *
   * @param options text that the library defines
   */
  public void setTransport(Path library, String options) {
    Transfers.set(this, library, options);
  }

  /**
   * Reserves pages for a sequence of so many tokens that another cache sends.
   *
   * @throws OutOfPagesException if the pages for it are not free
   */
  public Transfer receive(long tokens, ReceiveOptions options) {
    return Transfers.receive(this, tokens, options);
  }

  /**
   * Starts to send a sequence to the cache that a description is from. The sequence reaches the receiver's number of tokens, and is
   * not extended before the transfer is done. Poll the transfer between layers or steps.
   *
   * <p>With tensor parallelism, each rank of the sender opens each receiver's description. If the receiver needs no heads of this rank, the
   * transfer is done at its first poll.
   *
   * @param description what the receiver's {@link Transfer#describe} returned
   */
  public Transfer send(long sequence, byte[] description) {
    return Transfers.send(this, sequence, description);
  }

  // ---- steps ---------------------------------------------------------------------------------------------------------

  /** Throws what {@link #begin} would throw now, and changes nothing. */
  public void canFit(Batch batch) {
    canFit("Cache.canFit", batch, null);
  }

  void canFit(String function, Batch batch, Graph graph) {
    Arena arena = enter(function);
    try {
      Checks.given(function, "batch", batch).write(function, arena, graph);
      arena.check(handle.calls.cacheCanFit(handle.address, arena.batch.address, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  /**
   * Begins a step: reserves every page for the batch's new tokens, or changes nothing. Close it; a step that is closed
   * without {@link Step#end} drops its tokens.
   *
   * @throws OutOfPagesException if it does not fit now
   */
  public Step begin(Batch batch) {
    return begin("Cache.begin", batch, null);
  }

  /**
   * Begins a step, runs a body over it, and ends it. If the body throws, or if the step cannot end, the step is aborted: everything is
   * then as before the call. A step that the body itself has ended or aborted stays so.
   *
   * @param <E> what the body throws; nothing to declare if that is unchecked
   * @throws E what the body has thrown
   * @throws OutOfPagesException if the step does not fit now: the body does not run
   */
  public <E extends Exception> void step(Batch batch, Step.Body<E> body) throws E {
    Checks.given("Cache.step", "body", body);
    Step.whole(begin(batch), Step.withoutResult(body));
  }

  /**
   * As {@link #step}, and returns what the body returns. It has a name of its own, because Java cannot choose between two methods of
   * one name for {@code step -> model.run(step)}.
   *
   * @param <T> the result
   * @param <E> what the body throws; nothing to declare if that is unchecked
   * @throws E what the body has thrown
   * @throws OutOfPagesException if the step does not fit now: the body does not run
   */
  public <T, E extends Exception> T stepResult(Batch batch, Step.BodyWithResult<T, E> body) throws E {
    Checks.given("Cache.stepResult", "body", body);
    return Step.whole(begin(batch), body);
  }

  Step begin(String function, Batch batch, Graph graph) {
    Arena arena = enter(function);
    try {
      Checks.given(function, "batch", batch).write(function, arena, graph);
      arena.check(handle.calls.forwardBegin(handle.address, arena.batch.address, 0, arena.numbers.address, arena.error.address));
      return new Step(this, arena.numbers.getLong(0), graph);
    } finally {
      leave(arena);
    }
  }

  /** A graph for steps with at most these numbers of rows and tokens; 0 = the cache's limit. */
  public Graph createGraph(int maxSequences, int maxTokens) {
    return createGraph(maxSequences, maxTokens, 0);
  }

  /** The same with a number of columns of its block tables; 0 = the pages of the group. */
  public Graph createGraph(int maxSequences, int maxTokens, int maxPagesPerRow) {
    Arena arena = enter("Cache.createGraph");
    try {
      Mem c = arena.struct(Abi.GraphConfig.SIZE);
      c.putInt(Abi.GraphConfig.MAX_SEQUENCES, maxSequences);
      c.putInt(Abi.GraphConfig.MAX_TOKENS, maxTokens);
      c.putInt(Abi.GraphConfig.MAX_PAGES_PER_ROW, maxPagesPerRow);
      arena.check(handle.calls.graphCreate(handle.address, c.address, arena.numbers.address, arena.error.address));
      return new Graph(this, arena.numbers.getLong(0));
    } finally {
      leave(arena);
    }
  }

  /** Unless it is gone with the cache. */
  void destroyGraph(long graph) {
    if (!handle.enter()) {
      return;
    }
    Arena arena = Arena.take(handle.calls);
    try {
      arena.check(handle.calls.graphDestroy(handle.address, graph, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  /** A copy that the engine has to make in its own pools, in each layer of the group: as memmove does. */
  public record Copy(long sourceSlot, long targetSlot, int group, int count) {}

  /** In a cache with tables only: returns all copies that wait, in their order, and removes them from the cache. */
  public List<Copy> takeCopies() {
    Arena arena = enter("Cache.takeCopies");
    try {
      long count = arena.numbers.address;
      arena.check(handle.calls.cacheTakeCopies(handle.address, 0, Abi.Copy.SIZE, 0, count, arena.error.address));
      for (;;) {
        int capacity = (int) arena.numbers.getLong(0);
        if (capacity == 0) {
          return List.of();
        }
        Mem copies = arena.alloc((long) capacity * Abi.Copy.SIZE);
        int status = handle.calls.cacheTakeCopies(handle.address, copies.address, Abi.Copy.SIZE, capacity, count, arena.error.address);
        if (status == Abi.KVC_ERROR_BUFFER_TOO_SMALL) {
          continue;
        }
        arena.check(status);
        List<Copy> found = new ArrayList<>();
        for (int i = 0; i < arena.numbers.getLong(0); i++) {
          int at = i * Abi.Copy.SIZE;
          found.add(new Copy(copies.getLong(at + Abi.Copy.SOURCE_SLOT), copies.getLong(at + Abi.Copy.TARGET_SLOT),
              copies.getInt(at + Abi.Copy.GROUP), copies.getInt(at + Abi.Copy.COUNT)));
        }
        return found;
      }
    } finally {
      leave(arena);
    }
  }

  // ---- tensors out and in --------------------------------------------------------------------------------------------

  /** K and V as stored, each null where there is none: [tokens, kvHeads, dim] of the layer's dtype (float8: U8). */
  public record Exported(Tensor k, Tensor v, Tensor kScale, Tensor vScale) {}

  /** Which parts of a layer to copy. */
  public enum Part {
    K(Abi.KVC_EXPORT_K),
    V(Abi.KVC_EXPORT_V),
    K_SCALE(Abi.KVC_EXPORT_K_SCALE),
    V_SCALE(Abi.KVC_EXPORT_V_SCALE);

    final int bit;

    Part(int bit) {
      this.bit = bit;
    }
  }

  /** Copies all of a layer of a sequence into new buffers, as stored: rotated, rounded or quantised. */
  public Exported export(long sequence, int layer) {
    return export(sequence, layer, 0, 0);
  }

  /**
   * The same of tokens [begin, end); an end of 0 is the sequence's length.
   *
   * @param parts none = all that the layer has (of a latent layer K, of which V is a part)
   */
  public Exported export(long sequence, int layer, long begin, long end, Part... parts) {
    int wanted = 0;
    for (Part part : Checks.given("Cache.export", "parts", parts)) {
      wanted |= Checks.given("Cache.export", "part", part).bit;
    }
    Arena arena = enter("Cache.export");
    try {
      Mem args = arena.struct(Abi.ExportArgs.SIZE);
      args.putInt(Abi.ExportArgs.LAYER, layer);
      args.putInt(Abi.ExportArgs.PARTS, wanted);
      args.putLong(Abi.ExportArgs.POSITION_BEGIN, begin);
      args.putLong(Abi.ExportArgs.POSITION_END, end);
      Mem out = arena.struct(Abi.Exported.SIZE);
      arena.check(handle.calls.seqExport(handle.address, sequence, args.address, out.address, 0, arena.error.address));
      long[] managed = {out.getLong(Abi.Exported.K), out.getLong(Abi.Exported.V), out.getLong(Abi.Exported.K_SCALE),
          out.getLong(Abi.Exported.V_SCALE)};
      Tensor[] tensors = new Tensor[managed.length];
      try {
        for (int i = 0; i < managed.length; i++) {
          tensors[i] = managed[i] == 0 ? null : Managed.copy(handle.calls, managed[i]);
        }
      } finally {
        for (long each : managed) {
          if (each != 0) {
            handle.calls.release(each);
          }
        }
      }
      return new Exported(tensors[0], tensors[1], tensors[2], tensors[3]);
    } finally {
      leave(arena);
    }
  }

  /** Appends tokens of dense K and V to a sequence in every layer: the inverse of {@link #export}. */
  public void importTokens(long sequence, Import tokens) {
    Arena arena = enter("Cache.importTokens");
    try {
      Mem args = Checks.given("Cache.importTokens", "tokens", tokens).write("Cache.importTokens", arena);
      arena.check(arena.calls().seqImport(handle.address, sequence, args.address, 0, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  /** One of a layer's page pools. */
  public enum Pool {
    /** K and V together: [pages, 2, kvHeads, pageSize, dim]. */
    KV(Abi.KVC_POOL_KV),
    /** [pages, kvHeads, pageSize, dim] */
    K(Abi.KVC_POOL_K),
    V(Abi.KVC_POOL_V),
    K_SCALE(Abi.KVC_POOL_K_SCALE),
    V_SCALE(Abi.KVC_POOL_V_SCALE);

    final int code;

    Pool(int code) {
      this.code = code;
    }
  }

  /**
   * A layer's page pool itself, not a copy: what it holds changes with every step. It keeps the memory alive, also after
   * {@link #close}, until it and every buffer of it are unreachable.
   */
  public Tensor viewPool(int layer, Pool pool, boolean writable) {
    Arena arena = enter("Cache.viewPool");
    try {
      int flags = writable ? Abi.KVC_POOL_WRITABLE : 0;
      arena.check(handle.calls.cacheExportPool(handle.address, layer, Checks.given("Cache.viewPool", "pool", pool).code, flags,
          arena.numbers.address, 0, arena.error.address));
      return Managed.view(handle.calls, arena.numbers.getLong(0), !writable, handle.kept());
    } finally {
      leave(arena);
    }
  }

  // ---- counts --------------------------------------------------------------------------------------------------------

  /** What happens to the prefix index, for routers. Needs {@link CacheBuilder#eventsCapacity}. */
  public Events events() {
    return new Events(this);
  }

  /** Counts of a group, or of {@link #WHOLE_CACHE}. For dashboards, not for every step. */
  public Stats stats(int group) {
    Arena arena = enter("Cache.stats");
    try {
      Mem s = arena.struct(Abi.Stats.SIZE);
      arena.check(handle.calls.cacheStats(handle.address, group, s.address, arena.error.address));
      return new Stats(s.getInt(Abi.Stats.NUM_SEQUENCES), s.getLong(Abi.Stats.PAGES_TOTAL), s.getLong(Abi.Stats.PAGES_USED),
          s.getLong(Abi.Stats.PAGES_FREE), s.getLong(Abi.Stats.PAGES_SHARED), s.getLong(Abi.Stats.PAGES_PEAK),
          s.getLong(Abi.Stats.TOKENS_HELD), s.getLong(Abi.Stats.TOKENS_SHARED), s.getLong(Abi.Stats.TOKENS_LOGICAL),
          s.getLong(Abi.Stats.FRAGMENTATION_BYTES), s.getLong(Abi.Stats.STORAGE_BYTES), s.getLong(Abi.Stats.PAGES_PUBLISHED),
          s.getLong(Abi.Stats.PAGES_IDLE), s.getLong(Abi.Stats.PAGES_EVICTED), s.getLong(Abi.Stats.PREFIX_ATTACHES),
          s.getLong(Abi.Stats.PREFIX_TOKENS));
    } finally {
      leave(arena);
    }
  }

  /** Counts of the whole cache. */
  public Stats stats() {
    return stats(WHOLE_CACHE);
  }

  /**
   * The cache at this moment, as one JSON object: the pages of each group, the sequences and which pages they share, the prefix
   * index, tiers and open steps. No tokens. For dashboards: it walks the page tables.
   */
  public String describe() {
    Arena arena = enter("Cache.describe");
    try {
      return Context.text(arena, (buffer, capacity, length) ->
          handle.calls.cacheDescribe(handle.address, buffer, capacity, length, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  /** A hash of all bookkeeping: equal after equal calls on equal configs. */
  public long digest() {
    Arena arena = enter("Cache.digest");
    try {
      arena.check(handle.calls.cacheDigest(handle.address, arena.numbers.address, arena.error.address));
      return arena.numbers.getLong(0);
    } finally {
      leave(arena);
    }
  }

  /** Checks the bookkeeping; the error says which invariant does not hold. */
  public void checkInvariants() {
    Arena arena = enter("Cache.checkInvariants");
    try {
      arena.check(handle.calls.cacheCheckInvariants(handle.address, arena.error.address));
    } finally {
      leave(arena);
    }
  }

  /**
   * Aborts open steps and releases the cache: now, or when the last call that is inside it returns. Later calls are errors;
   * closing it again does nothing.
   */
  @Override
  public void close() {
    cleanable.clean();
  }
}
