package dev.kvcache.conformance;

import dev.kvcache.Cache;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Collectors;

/** Saved sequences, in files of the folders that the driver names. */
final class SaveOperations {
  private SaveOperations() {}

  static void register(Map<String, Consumer<Script>> operations) {
    operations.put("save", s -> {
      int[] tokens = s.has("tokens") ? s.ints("tokens") : new int[0];
      s.cache().save(s.sequence(), path("KVCACHE_CONFORMANCE_SAVE", s, "file"), tokens, s.integer("section_bytes", 0));
    });
    operations.put("load", s -> {
      Cache.LoadedSequence loaded = s.cache().load(path("KVCACHE_CONFORMANCE_LOAD", s, "file"));
      s.bind(new long[] {loaded.sequence()});
      s.results.put("tokens", Arrays.stream(loaded.tokens()).mapToObj(Integer::toString).collect(Collectors.joining(",")));
    });
  }

  static Path path(String variable, Script s, String key) {
    return Path.of(System.getenv().getOrDefault(variable, "."), s.word(key, ""));
  }
}
