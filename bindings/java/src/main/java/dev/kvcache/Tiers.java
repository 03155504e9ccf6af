package dev.kvcache;

import java.util.Optional;

/** The calls of a cache on its tiers; {@link Cache} says what each does. */
final class Tiers {
  private Tiers() {}

  static void add(Cache cache, DiskTier tier) {
    String function = "Cache.addDiskTier";
    Arena arena = cache.enter(function);
    try {
      Mem config = Checks.given(function, "tier", tier).write(function, arena);
      arena.check(cache.handle.calls.cacheAddTier(cache.handle.address, config.address, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  static void add(Cache cache, HostTier tier) {
    String function = "Cache.addHostTier";
    Arena arena = cache.enter(function);
    try {
      Mem config = Checks.given(function, "tier", tier).write(function, arena);
      arena.check(function, cache.handle.calls.cacheAddTier(cache.handle.address, config.address, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /** Starts to suspend or to resume a sequence. */
  static LoadJob move(Cache cache, boolean resume, long sequence) {
    Arena arena = cache.enter(resume ? "Cache.resume" : "Cache.suspend");
    try {
      NativeCalls calls = cache.handle.calls;
      long job = arena.numbers.address;
      long error = arena.error.address;
      arena.check(resume
          ? calls.seqResume(cache.handle.address, sequence, job, error)
          : calls.seqSuspend(cache.handle.address, sequence, job, error));
      return new LoadJob(cache, arena.numbers.getLong(0));
    } finally {
      cache.leave(arena);
    }
  }

  static Cache.StartedLoad load(Cache cache, PrefixQuery query, LoadOptions options) {
    String function = "Cache.loadPrefix";
    return Prefixes.with(cache, function, query, (calls, arena, address) -> {
      Mem terms = Checks.given(function, "options", options).write(arena);
      Mem hit = arena.struct(Abi.PrefixHit.SIZE);
      arena.check(calls.prefixLoad(
          cache.handle.address, address, terms.address, hit.address, arena.numbers.address, arena.error.address));
      long job = arena.numbers.getLong(0);
      return new Cache.StartedLoad(job == 0 ? null : new LoadJob(cache, job), PrefixHit.of(hit));
    });
  }

  static Optional<PendingLoad> pending(Cache cache, long sequence) {
    Arena arena = cache.enter("Cache.pending");
    try {
      Mem info = arena.struct(Abi.PendingInfo.SIZE);
      arena.check(cache.handle.calls.seqPending(cache.handle.address, sequence, info.address, arena.error.address));
      return info.getLong(Abi.PendingInfo.JOB) == 0 ? Optional.empty() : Optional.of(PendingLoad.of(info));
    } finally {
      cache.leave(arena);
    }
  }

  static TierTraffic traffic(Cache cache) {
    Arena arena = cache.enter("Cache.tierTraffic");
    try {
      Mem traffic = arena.struct(Abi.TierTraffic.SIZE);
      arena.check(cache.handle.calls.cacheTierTraffic(cache.handle.address, traffic.address, arena.error.address));
      return TierTraffic.of(traffic);
    } finally {
      cache.leave(arena);
    }
  }
}
