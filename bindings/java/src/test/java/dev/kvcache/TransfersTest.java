package dev.kvcache;

import static dev.kvcache.Support.DIM;
import static dev.kvcache.Support.KV_HEADS;
import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.concat;
import static dev.kvcache.Support.expectAttention;
import static dev.kvcache.Support.floats;
import static dev.kvcache.Support.refused;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Sequences to other caches of this process. */
class TransfersTest {
  private static final long ROW_BYTES = 2L * KV_HEADS * DIM * 4;
  private static final ReceiveOptions PATIENT = ReceiveOptions.create().timeout(Duration.ofHours(1));

  @TempDir Path folder;

  private static void goesOn(Cache cache, long sequence, Tokens stored) {
    Tokens next = new Tokens(new Random(3), 1);
    step(cache, sequence, next);
    expectAttention(concat(floats(stored.k), floats(next.k)), concat(floats(stored.v), floats(next.v)), floats(next.q),
        floats(next.out), floats(next.lse), Integer.MAX_VALUE);
  }

  @Test
  void aSequenceTravels() throws InterruptedException {
    try (Cache prefill = cache(); Cache decode = cache(c -> c.pageSize(8))) {
      long source = prefill.add();
      Tokens tokens = new Tokens(new Random(1), 21);
      step(prefill, source, tokens);
      Transfer incoming = decode.receive(21, PATIENT);
      Transfer outgoing = prefill.send(source, incoming.describe());
      assertEquals(new TransferProgress(false, 21, 21 * ROW_BYTES, 0), outgoing.poll());
      TransferProgress received = incoming.await();
      assertEquals(new TransferProgress(true, 21, 21 * ROW_BYTES, received.sequence()), received);
      assertEquals(new TransferProgress(true, 21, 21 * ROW_BYTES, 0), outgoing.await());
      assertEquals(received, incoming.poll());
      incoming.cancel();
      incoming.close(); // the sequence stays
      outgoing.close();
      goesOn(decode, received.sequence(), tokens);
      goesOn(prefill, source, tokens);
    }
  }

  @Test
  void onlyTheTailOfAPrefixTravels() throws InterruptedException {
    try (Cache prefill = cache(); Cache decode = cache()) {
      long source = prefill.add();
      Tokens tokens = new Tokens(new Random(1), 21);
      step(prefill, source, tokens);
      long prefix = prefill.fork(source);
      prefill.truncate(new long[] {prefix}, new long[] {10});
      Transfer first = decode.receive(10, PATIENT);
      Transfer out = prefill.send(prefix, first.describe());
      out.poll();
      long has = first.await().sequence();
      Transfer incoming = decode.receive(21, ReceiveOptions.create().prefix(has).timeout(Duration.ofDays(1).minusHours(23)));
      Transfer outgoing = prefill.send(source, incoming.describe());
      outgoing.poll();
      TransferProgress received = incoming.await();
      assertEquals((21 - 8) * ROW_BYTES, received.bytes());
      goesOn(decode, received.sequence(), tokens);
    }
  }

  @Test
  void aClosedTransferIsCancelled() throws InterruptedException {
    try (Cache prefill = cache(); Cache decode = cache()) {
      long source = prefill.add();
      step(prefill, source, new Tokens(new Random(1), 9));
      Transfer incoming = decode.receive(10, PATIENT);
      Transfer outgoing = prefill.send(source, incoming.describe());
      assertFalse(outgoing.await(Duration.ofMillis(5)).done());
      Thread.currentThread().interrupt();
      assertThrows(InterruptedException.class, outgoing::await);
      assertTrue(decode.stats(0).pagesUsed() > 0);
      assertEquals(new TransferProgress(false, 9, 9 * ROW_BYTES, 0), incoming.poll()); // the sender has less
      incoming.close();
      incoming.close();
      assertEquals(0, decode.stats(0).pagesUsed());
      refused(Status.IO, outgoing::await, "Transfer.poll: ", "cancelled");
      refused(Status.STALE_ID, outgoing::poll);
      Transfer late = decode.receive(1, PATIENT);
      decode.close();
      late.close();
      refused(Status.NULL_ARGUMENT, late::poll);
    }
  }

  @Test
  void whatIsRefused() throws InterruptedException {
    try (Cache prefill = cache(); Cache decode = cache()) {
      long source = prefill.add();
      step(prefill, source, new Tokens(new Random(1), 8));
      refused(Status.OUT_OF_RANGE, () -> decode.receive(0, PATIENT), "Cache.receive: ", "numTokens 0");
      refused(Status.OUT_OF_RANGE, () -> decode.receive(1, ReceiveOptions.create().timeout(Duration.ZERO)), "timeout -1");
      refused(Status.OUT_OF_RANGE, () -> decode.receive(1, ReceiveOptions.create().timeout(Duration.ofDays(400))), "timeout");
      refused(Status.NULL_ARGUMENT, () -> decode.receive(1, null), "options");
      refused(Status.NULL_ARGUMENT, () -> prefill.send(source, null), "description");
      assertThrows(OutOfPagesException.class, () -> decode.receive(1 << 20, PATIENT));
      Transfer incoming = decode.receive(8, PATIENT);
      byte[] description = incoming.describe();
      refused(Status.CORRUPT, () -> prefill.send(source, Arrays.copyOf(description, description.length - 1)), "Cache.send");
      try (Cache other = cache(c -> c.capacityTokens(64).layers(Layer.builder().qHeads(4).kvHeads(1).headDim(DIM).build()))) {
        refused(Status.LAYOUT, () -> other.send(other.add(), description));
      }
      Transfer outgoing = prefill.send(source, description);
      refused(Status.INVALID_ARGUMENT, outgoing::describe, "Transfer.describe");
      Transfer silent = decode.receive(8, ReceiveOptions.create().timeout(Duration.ofMillis(10)));
      refused(Status.IO, silent::await, "silent");
    }
  }

  @Test
  void librariesThatAreNoTransport() throws IOException {
    try (Cache cache = cache()) {
      refused(Status.IO, () -> cache.setTransport(Path.of("/no/such/library.so"), ""), "Cache.setTransport: ", "library.so");
      refused(Status.INVALID_ARGUMENT, () -> cache.setTransport(Path.of("x"), "a\0b"), "NUL");
      refused(Status.NULL_ARGUMENT, () -> cache.setTransport(null, ""), "library");
      refused(Status.UNSUPPORTED, () -> cache.setTransport(Path.of("libm.so.6"), ""), "kvc_transport_open");
      Path text = Files.writeString(folder.resolve("text.so"), "no library");
      refused(Status.IO, () -> cache.setTransport(text, ""), "Cache.setTransport");
      for (Map<String, String> bad : List.of(Map.of("", "x"), Map.of("a=b", "x"), Map.of("a;b", "x"), Map.of("a", "x;y"))) {
        refused(Status.INVALID_ARGUMENT, () -> cache.useNixl(bad), "Cache.useNixl", "no option");
      }
      refused(Status.NULL_ARGUMENT, () -> cache.useNixl(null), "options");
      if (System.getenv("KVCACHE_NIXL_LIBRARY") == null) {
        refused(Status.IO, () -> cache.useNixl(Map.of("backend", "UCX")), "Cache.useNixl", "libkvcache_nixl.so.0");
      }
      cache.receive(1, PATIENT).close(); // it reaches caches of this process
    }
  }
}
