package dev.kvcache;

import java.util.ArrayList;
import java.util.List;

/**
 * What happens to the prefix index of a cache, for routers. The cache needs {@link CacheBuilder#eventsCapacity}.
 *
 * <pre>{@code
 * EventRange found = cache.events().read(next, 1024);
 * if (found.epoch() != epoch || found.begin() != next) { // another cache, or events are lost
 *   found = cache.events().snapshot();
 * }
 * next = found.end();
 * }</pre>
 */
public final class Events {
  private final Cache cache;

  Events(Cache cache) {
    this.cache = cache;
  }

  private interface Call {
    int with(NativeCalls calls, long cache, long args, long range, long error);
  }

  private static final Call READ = NativeCalls::eventsRead;
  private static final Call SNAPSHOT = NativeCalls::eventsSnapshot;

  /** The events from a number on, at most so many. */
  public EventRange read(long next, int most) {
    String function = "Events.read";
    if (most < 0) {
      throw KvcacheException.misuse(Status.INVALID_ARGUMENT, function + ": most " + most + " is negative");
    }
    EventRange there = events(function, READ, next, 0);
    return events(function, READ, next, (int) Math.min(most, there.newest() - there.begin()));
  }

  /** A stored event for each page that the index holds, parents first. Read on from its end. */
  public EventRange snapshot() {
    return grown("Events.snapshot", (pages, bytes) -> events("Events.snapshot", SNAPSHOT, 0, pages));
  }

  /** One message with the events from a number on: at most 4096, and as many as fit. */
  public EventMessage message(long next, MessageFormat format) {
    String function = "Events.message";
    return message(function, READ, next, format, Checks.given(function, "format", format).maxBytes);
  }

  /** One message that clears all blocks, and then stores each page that the index holds. */
  public EventMessage snapshotMessage(MessageFormat format) {
    String function = "Events.snapshotMessage";
    Checks.given(function, "format", format);
    return grown(function, (pages, bytes) -> message(function, SNAPSHOT, 0, format, bytes));
  }

  private interface Sized<T> {
    T with(int pages, int bytes);
  }

  /** Calls with the pages and bytes of a snapshot until they are enough: the index may grow meanwhile. */
  private <T> T grown(String function, Sized<T> call) {
    for (;;) {
      long[] sizes = fill(function, SNAPSHOT, (arena, args) -> null,
          (range, none) -> new long[] {range.getLong(Abi.EventsRange.COUNT), range.getLong(Abi.EventsRange.NUM_BYTES)});
      try {
        return call.with(more(sizes[0]), more(sizes[1]));
      } catch (KvcacheException e) {
        if (e.status() != Status.BUFFER_TOO_SMALL) {
          throw e;
        }
      }
    }
  }

  private static int more(long size) {
    return (int) Math.min(Integer.MAX_VALUE, size + size / 8 + 16);
  }

  private interface Setter<B> {
    B set(Arena arena, Mem args);
  }

  private interface Reader<B, T> {
    T read(Mem range, B buffers);
  }

  private <B, T> T fill(String function, Call call, Setter<B> setter, Reader<B, T> reader) {
    Arena arena = cache.enter(function);
    try {
      Mem args = arena.struct(Abi.EventsArgs.SIZE);
      Mem range = arena.struct(Abi.EventsRange.SIZE);
      B buffers = setter.set(arena, args);
      arena.check(call.with(cache.handle.calls, cache.handle.address, args.address, range.address, arena.error.address));
      return reader.read(range, buffers);
    } finally {
      cache.leave(arena);
    }
  }

  private EventRange events(String function, Call call, long next, int most) {
    int size = cache.pageSize;
    return fill(function, call, (arena, args) -> {
      Mem events = arena.alloc((long) most * Abi.Event.SIZE);
      Mem tokens = arena.alloc(4L * most * size);
      args.putLong(Abi.EventsArgs.NEXT, next);
      args.putInt(Abi.EventsArgs.EVENT_SIZE, Abi.Event.SIZE);
      args.putLong(Abi.EventsArgs.CAPACITY, most);
      args.putLong(Abi.EventsArgs.EVENTS, most == 0 ? 0 : events.address);
      args.putLong(Abi.EventsArgs.TOKENS, most == 0 ? 0 : tokens.address);
      return new Mem[] {events, tokens};
    }, (range, buffers) -> {
      List<Event> found = new ArrayList<>();
      for (int i = 0; i < Math.min(most, range.getLong(Abi.EventsRange.COUNT)); i++) {
        found.add(Event.of(part(buffers[0], i * Abi.Event.SIZE), part(buffers[1], 4 * i * size), size));
      }
      return new EventRange(range.getLong(Abi.EventsRange.EPOCH), range.getLong(Abi.EventsRange.BEGIN),
          range.getLong(Abi.EventsRange.END), range.getLong(Abi.EventsRange.NEWEST), List.copyOf(found));
    });
  }

  private static Mem part(Mem whole, int offset) {
    return new Mem(whole.buffer, whole.at + offset, whole.address - whole.at);
  }

  private EventMessage message(String function, Call call, long next, MessageFormat format, int maxBytes) {
    return fill(function, call, (arena, args) -> {
      Mem bytes = arena.alloc(maxBytes);
      format.write(args);
      args.putLong(Abi.EventsArgs.NEXT, next);
      args.putLong(Abi.EventsArgs.BYTES, bytes.address);
      args.putLong(Abi.EventsArgs.CAPACITY_BYTES, maxBytes);
      return bytes;
    }, (range, bytes) -> {
      byte[] payload = new byte[(int) range.getLong(Abi.EventsRange.NUM_BYTES)];
      bytes.buffer.get(bytes.at, payload);
      return new EventMessage(range.getLong(Abi.EventsRange.EPOCH), range.getLong(Abi.EventsRange.BEGIN),
          range.getLong(Abi.EventsRange.END), range.getLong(Abi.EventsRange.NEWEST), range.getLong(Abi.EventsRange.COUNT), payload);
    });
  }
}
