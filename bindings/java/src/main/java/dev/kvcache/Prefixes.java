package dev.kvcache;

/** The calls of a cache on its prefix index; {@link Cache} says what each does. */
final class Prefixes {
  private Prefixes() {}

  interface Call<T> {
    T with(NativeCalls calls, Arena arena, long query);
  }

  /** Makes a call with the address of a query. The tokens are a copy. */
  static <T> T with(Cache cache, String function, PrefixQuery query, Call<T> call) {
    Arena arena = cache.enter(function);
    try {
      return call.with(cache.handle.calls, arena, Checks.given(function, "query", query).write(function, arena).address);
    } finally {
      cache.leave(arena);
    }
  }

  static PrefixHit match(Cache cache, PrefixQuery query) {
    return with(cache, "Cache.matchPrefix", query, (calls, arena, address) -> {
      Mem hit = arena.struct(Abi.PrefixHit.SIZE);
      arena.check(calls.prefixMatch(cache.handle.address, address, hit.address, arena.error.address));
      return PrefixHit.of(hit);
    });
  }

  static Cache.AttachedPrefix attach(Cache cache, PrefixQuery query) {
    return with(cache, "Cache.attachPrefix", query, (calls, arena, address) -> {
      Mem hit = arena.struct(Abi.PrefixHit.SIZE);
      long sequence = arena.numbers.address;
      arena.check(calls.prefixAttach(cache.handle.address, address, 0, hit.address, sequence, arena.error.address));
      return new Cache.AttachedPrefix(arena.numbers.getLong(0), PrefixHit.of(hit));
    });
  }

  static PrefixPublished publish(Cache cache, long sequence, PrefixQuery query, PrefixOptions options) {
    String function = "Cache.publishPrefix";
    return with(cache, function, query, (calls, arena, address) -> {
      Mem terms = Checks.given(function, "options", options).write(arena);
      Mem done = arena.struct(Abi.PrefixPublished.SIZE);
      arena.check(calls.prefixPublish(cache.handle.address, sequence, address, terms.address, done.address, arena.error.address));
      return new PrefixPublished(done.getLong(Abi.PrefixPublished.KNOWN_TOKENS), done.getLong(Abi.PrefixPublished.PAGES_ADDED),
          done.getLong(Abi.PrefixPublished.PAGES_FREED));
    });
  }

  static long drop(Cache cache, PrefixQuery query) {
    return with(cache, "Cache.dropPrefix", query, (calls, arena, address) -> {
      arena.check(calls.prefixDrop(cache.handle.address, address, arena.numbers.address, arena.error.address));
      return arena.numbers.getLong(0);
    });
  }

  static void setPriority(Cache cache, PrefixQuery query, int priority, long timeToLive) {
    with(cache, "Cache.setPrefixPriority", query, (calls, arena, address) -> {
      arena.check(calls.prefixSetPriority(cache.handle.address, address, priority, timeToLive, arena.error.address));
      return null;
    });
  }

  static Cache.PinnedPrefix pin(Cache cache, PrefixQuery query) {
    return with(cache, "Cache.pinPrefix", query, (calls, arena, address) -> {
      Mem hit = arena.struct(Abi.PrefixHit.SIZE);
      arena.check(calls.prefixPin(cache.handle.address, address, hit.address, arena.numbers.address, arena.error.address));
      return new Cache.PinnedPrefix(arena.numbers.getLong(0), PrefixHit.of(hit));
    });
  }

  static long dropSession(Cache cache, long session) {
    Arena arena = cache.enter("Cache.dropSession");
    try {
      long pages = arena.numbers.address;
      arena.check(cache.handle.calls.prefixDropSession(cache.handle.address, session, pages, arena.error.address));
      return arena.numbers.getLong(0);
    } finally {
      cache.leave(arena);
    }
  }

  private interface Plain {
    int with(NativeCalls calls, long cache, long error);
  }

  private static void call(Cache cache, String function, Plain call) {
    Arena arena = cache.enter(function);
    try {
      arena.check(call.with(cache.handle.calls, cache.handle.address, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  static void setSessionPriority(Cache cache, long session, int priority, long timeToLive) {
    call(cache, "Cache.setSessionPriority", (calls, address, error) ->
        calls.prefixSetSessionPriority(address, session, priority, timeToLive, error));
  }

  static void unpin(Cache cache, long pin) {
    call(cache, "Cache.unpinPrefix", (calls, address, error) -> calls.prefixUnpin(address, pin, error));
  }

  static void setTime(Cache cache, long now) {
    call(cache, "Cache.setTime", (calls, address, error) -> calls.cacheSetTime(address, now, error));
  }
}
