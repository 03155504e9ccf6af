package dev.kvcache;

import java.util.ArrayList;
import java.util.List;

/** Media spans of {@link PageKeys} and {@link PrefixQuery}. */
final class MediaSpans {
  private record Span(long begin, long tokens, byte[] hash) {}

  private final List<Span> spans = new ArrayList<>();

  void add(String function, long begin, long tokens, byte[] hash) {
    spans.add(new Span(begin, tokens, Checks.given(function, "mediaHashes", PageKeys.key(function, "mediaHashes", hash))));
  }

  /** Writes the four fields of a struct that begin with num_media. */
  void write(Arena arena, Mem struct, int numMedia) {
    byte[] hashes = new byte[PageKeys.BYTES * spans.size()];
    for (int i = 0; i < spans.size(); i++) {
      System.arraycopy(spans.get(i).hash, 0, hashes, PageKeys.BYTES * i, PageKeys.BYTES);
    }
    struct.putLong(numMedia, spans.size());
    struct.putLong(numMedia + 8, arena.longs(spans.stream().mapToLong(Span::begin).toArray()));
    struct.putLong(numMedia + 16, arena.longs(spans.stream().mapToLong(Span::tokens).toArray()));
    struct.putLong(numMedia + 24, arena.bytes(hashes));
  }
}
