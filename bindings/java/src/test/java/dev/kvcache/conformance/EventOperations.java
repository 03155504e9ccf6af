package dev.kvcache.conformance;

import dev.kvcache.Event;
import dev.kvcache.EventMessage;
import dev.kvcache.EventRange;
import dev.kvcache.MessageFormat;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.ToLongFunction;
import java.util.stream.Collectors;

/** Operations on events of the prefix index. */
final class EventOperations {
  private EventOperations() {}

  static void register(Map<String, Consumer<Script>> operations) {
    operations.put("events", EventOperations::events);
    operations.put("event_message", EventOperations::message);
  }

  private static String of(List<Event> events, ToLongFunction<Event> number) {
    return events.stream().map(event -> Long.toString(number.applyAsLong(event))).collect(Collectors.joining(","));
  }

  private static String hex(byte[] key) {
    return HexFormat.of().formatHex(key == null ? new byte[32] : key);
  }

  private static void events(Script s) {
    EventRange found = s.has("snapshot")
        ? s.cache().events().snapshot() : s.cache().events().read(s.integer("next", 0), (int) s.integer("most", 256));
    List<Event> events = found.events();
    s.results.put("begin", found.begin());
    s.results.put("end", found.end());
    s.results.put("newest", found.newest());
    s.results.put("kinds", of(events, event -> event.kind().ordinal() + 1));
    s.results.put("groups", of(events, Event::group));
    s.results.put("tiers", of(events, Event::tier));
    StringBuilder keys = new StringBuilder();
    StringBuilder parents = new StringBuilder();
    for (Event event : events) {
      keys.append(hex(event.key()));
      parents.append(hex(event.parent()));
    }
    s.results.put("keys", keys);
    s.results.put("parents", parents);
    s.results.put("positions", of(events, Event::position));
    s.results.put("sessions", of(events, Event::session));
    s.results.put("salted", of(events, event -> event.salted() ? 1 : 0));
    s.results.put("tokens", events.stream().flatMapToInt(event -> Arrays.stream(event.tokens())).mapToObj(Integer::toString)
        .collect(Collectors.joining(",")));
  }

  private static void message(Script s) {
    MessageFormat format = new MessageFormat().timestamp(s.number("timestamp"));
    if (s.has("rank")) {
      format.dataParallelRank(s.integer("rank"));
    }
    if (s.has("arrays")) {
      format.arrays();
    }
    if (s.has("short_hashes")) {
      format.shortHashes();
    }
    if (s.has("max_bytes")) {
      format.maxBytes(s.integer("max_bytes"));
    }
    EventMessage message = s.has("snapshot")
        ? s.cache().events().snapshotMessage(format) : s.cache().events().message(s.integer("next", 0), format);
    s.results.put("begin", message.begin());
    s.results.put("end", message.end());
    s.results.put("newest", message.newest());
    s.results.put("count", message.count());
    s.results.put("payload", HexFormat.of().formatHex(message.payload()));
  }
}
