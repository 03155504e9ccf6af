package dev.kvcache;

import java.nio.file.Path;

/** The calls of a cache on saved sequences; {@link Cache} says what each does. */
final class Saves {
  private Saves() {}

  static void save(Cache cache, long sequence, Path path, int[] tokens, long sectionBytes) {
    String function = "Cache.save";
    Arena arena = cache.enter(function);
    try {
      Mem args = arena.struct(Abi.SaveArgs.SIZE);
      args.putLong(Abi.SaveArgs.PATH, arena.text(Checks.given(function, "path", path).toString()));
      args.putLong(Abi.SaveArgs.TOKENS, arena.ints(Checks.given(function, "tokens", tokens)));
      args.putLong(Abi.SaveArgs.NUM_TOKENS, tokens.length);
      args.putLong(Abi.SaveArgs.SECTION_BYTES, sectionBytes);
      arena.check(cache.handle.calls.seqSave(cache.handle.address, sequence, args.address, 0, arena.error.address));
    } finally {
      cache.leave(arena);
    }
  }

  /** How many token ids there are is in the file's header, so the first call has room for one. */
  static Cache.LoadedSequence load(Cache cache, Path path) {
    String function = "Cache.load";
    long capacity = 1;
    for (;;) {
      Arena arena = cache.enter(function);
      try {
        Mem tokens = arena.alloc(4 * capacity);
        Mem args = arena.struct(Abi.LoadArgs.SIZE);
        args.putLong(Abi.LoadArgs.PATH, arena.text(Checks.given(function, "path", path).toString()));
        args.putLong(Abi.LoadArgs.TOKENS, tokens.address);
        args.putLong(Abi.LoadArgs.CAPACITY, capacity);
        Mem found = arena.alloc(16);
        int status = cache.handle.calls.seqLoad(
            cache.handle.address, args.address, 0, found.address, found.address + 8, arena.error.address);
        long count = found.getLong(8);
        if (status == Status.BUFFER_TOO_SMALL.code && count > capacity) {
          capacity = count;
          continue;
        }
        arena.check(status);
        int[] ids = new int[(int) count];
        for (int i = 0; i < ids.length; i++) {
          ids[i] = tokens.getInt(4 * i);
        }
        return new Cache.LoadedSequence(found.getLong(0), ids);
      } finally {
        cache.leave(arena);
      }
    }
  }
}
