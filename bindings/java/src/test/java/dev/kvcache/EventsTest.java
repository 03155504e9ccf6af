package dev.kvcache;

import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.refused;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** Events of the prefix index: what routers are told. */
class EventsTest {
  private static Cache telling(long capacity) {
    return cache(c -> c.prefixIndex().fingerprint(new byte[32]).eventsCapacity(capacity));
  }

  private static int[] tokens(int begin, int end) {
    return IntStream.range(begin, end).toArray();
  }

  private static void publish(Cache cache, PrefixQuery query, int tokens, long session) {
    long sequence = cache.add();
    step(cache, sequence, new Tokens(new Random(80), tokens));
    cache.publishPrefix(sequence, query, PrefixOptions.create().session(session));
    cache.remove(sequence);
  }

  private static void stored(Event event, long number, byte[] key, byte[] parent, int page) {
    assertEquals(Event.Kind.STORED, event.kind());
    assertEquals(number, event.number());
    assertEquals(0, event.group());
    assertArrayEquals(key, event.key());
    assertArrayEquals(parent, event.parent());
    assertEquals(4L * page, event.position());
    assertArrayEquals(tokens(4 * page, 4 * page + 4), event.tokens());
    assertEquals(3, event.session());
    assertEquals(page == 1, event.salted());
  }

  private static boolean contains(byte[] bytes, byte[] key) {
    return new String(bytes, StandardCharsets.ISO_8859_1).contains(new String(key, StandardCharsets.ISO_8859_1));
  }

  @Test
  void eventsSayWhatIsPublishedAndDropped() {
    try (Cache cache = telling(100)) {
      publish(cache, PrefixQuery.of(tokens(0, 10)).salt(9).saltBegin(4), 10, 3);
      byte[][] keys = PageKeys.of(tokens(0, 10), 4).fingerprint(new byte[32]).salt(new byte[] {9, 0, 0, 0, 0, 0, 0, 0}, 4).compute();
      EventRange found = cache.events().read(0, 100);
      assertArrayEquals(new long[] {0, 2, 2}, new long[] {found.begin(), found.end(), found.newest()});
      assertEquals(2, found.events().size());
      stored(found.events().get(0), 0, keys[0], null, 0);
      stored(found.events().get(1), 1, keys[1], keys[0], 1);
      List<Event> one = cache.events().read(1, 1).events();
      assertEquals(1, one.size());
      stored(one.get(0), 1, keys[1], keys[0], 1);
      assertEquals(1, cache.events().read(0, 1).end());

      EventMessage message = cache.events().message(0, new MessageFormat());
      assertEquals(found.epoch(), message.epoch());
      assertArrayEquals(new long[] {0, 2, 2}, new long[] {message.begin(), message.end(), message.count()});
      assertTrue(contains(message.payload(), keys[1]));
      refused(Status.BUFFER_TOO_SMALL, () -> cache.events().message(0, new MessageFormat().maxBytes(1)));

      cache.dropPrefix(PrefixQuery.of(tokens(0, 8)).salt(9).saltBegin(4));
      Event removed = cache.events().read(2, 100).events().get(0);
      assertEquals(Event.Kind.REMOVED, removed.kind());
      assertArrayEquals(keys[1], removed.key());
      EventRange snapshot = cache.events().snapshot();
      assertEquals(3, snapshot.end());
      assertEquals(1, snapshot.events().size());
      stored(snapshot.events().get(0), 0, keys[0], null, 0);
      EventMessage all = cache.events().snapshotMessage(new MessageFormat());
      assertEquals(1, all.count());
      assertTrue(contains(all.payload(), keys[0]));
      cache.clear();
      Event cleared = cache.events().read(3, 100).events().get(0);
      assertEquals(Event.Kind.CLEARED, cleared.kind());
      assertEquals(-1, cleared.group());
      assertNull(cleared.key());
      assertTrue(cache.events().snapshot().events().isEmpty());
    }
  }

  @Test
  void aReaderNoticesWhatItMissed() {
    try (Cache cache = telling(3); Cache other = telling(3); Cache silent = telling(0)) {
      publish(cache, PrefixQuery.of(tokens(0, 40)), 40, 0);
      EventRange found = cache.events().read(0, 100);
      assertArrayEquals(new long[] {7, 10, 3}, new long[] {found.begin(), found.end(), found.events().size()});
      assertEquals(10, cache.events().snapshot().events().size());
      assertNotEquals(found.epoch(), other.events().read(0, 1).epoch());
      refused(Status.UNSUPPORTED, () -> silent.events().read(0, 1), "Events.read: ");
      refused(Status.UNSUPPORTED, () -> silent.events().snapshot(), "Events.snapshot: ");
      refused(Status.INVALID_ARGUMENT, () -> cache.events().read(0, -1), "most -1");
    }
  }

  private static List<List<Long>> places(List<Event> events) {
    return events.stream().map(event -> List.of((long) event.tier(), event.position(), event.session())).collect(Collectors.toList());
  }

  @Test
  void pagesOfTiersAreTold() throws InterruptedException {
    try (Cache cache = cache(c -> c.prefixIndex().fingerprint(new byte[32]).eventsCapacity(100).eventsTierPages(100))) {
      cache.addHostTier(HostTier.of(1 << 20).medium("Flash"));
      refused(Status.INVALID_ARGUMENT, () -> cache.addHostTier(HostTier.of(1 << 20).medium("Flash")), "is taken");
      publish(cache, PrefixQuery.of(tokens(0, 12)), 12, 3);
      while (cache.tierTraffic().pagesWaiting() > 0) {
        Thread.sleep(1);
      }
      List<List<Long>> all = List.of(List.of(0L, 0L, 3L), List.of(0L, 4L, 3L), List.of(0L, 8L, 3L), List.of(1L, 0L, 3L),
          List.of(1L, 4L, 3L), List.of(1L, 8L, 3L));
      assertEquals(all, places(cache.events().read(0, 100).events()));
      assertEquals(all, places(cache.events().snapshot().events()));
      assertTrue(contains(cache.events().message(0, new MessageFormat()).payload(), "Flash".getBytes(StandardCharsets.US_ASCII)));
      cache.clear();
      List<Event> cleared = cache.events().read(6, 100).events();
      assertEquals(3, cleared.size());
      cleared.forEach(event -> assertEquals(Event.Kind.REMOVED, event.kind()));
      assertEquals(all.subList(3, 6), places(cache.events().snapshot().events()));
    }
  }
}
