package dev.kvcache;

import static dev.kvcache.Support.cache;
import static dev.kvcache.Support.refused;
import static dev.kvcache.Support.step;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.kvcache.Support.Tokens;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Sequences in files. */
class SavesTest {
  @TempDir Path folder;

  private static long chat(Cache cache) {
    long sequence = cache.add();
    step(cache, sequence, new Tokens(new Random(8), 10));
    return sequence;
  }

  @Test
  void aLoadedSequenceHoldsWhatWasSaved() throws IOException {
    try (Cache cache = cache(c -> c); Cache other = cache(c -> c)) {
      long sequence = chat(cache);
      int[] tokens = {-3, -2, -1, 0, 1, 2, 3, 4, 5, 6};
      Path path = folder.resolve("chat.kvc");
      Path again = folder.resolve("again.kvc");
      cache.save(sequence, path, tokens);
      Cache.LoadedSequence loaded = other.load(path);
      assertArrayEquals(tokens, loaded.tokens());
      other.save(loaded.sequence(), again, loaded.tokens());
      assertArrayEquals(Files.readAllBytes(path), Files.readAllBytes(again));
      cache.save(sequence, path);
      assertEquals(0, other.load(path).tokens().length);
      other.checkInvariants();
    }
  }

  @Test
  void refusedFiles() throws IOException {
    try (Cache cache = cache(c -> c)) {
      long sequence = chat(cache);
      Path path = folder.resolve("chat.kvc");
      cache.save(sequence, path);
      byte[] whole = Files.readAllBytes(path);
      KvcacheException missing = refused(Status.IO, () -> cache.load(folder.resolve("none.kvc")));
      assertTrue(missing.getMessage().contains("Cache.load: cannot open"), missing.getMessage());
      Path shorter = Files.write(folder.resolve("shorter.kvc"), Arrays.copyOf(whole, whole.length - 1));
      refused(Status.CORRUPT, () -> cache.load(shorter));
      refused(Status.INVALID_ARGUMENT, () -> cache.save(sequence, path, new int[] {1}));
      refused(Status.NULL_ARGUMENT, () -> cache.load(null));
      assertArrayEquals(whole, Files.readAllBytes(path));
      assertEquals(1, cache.stats().sequences());
    }
  }
}
