package dev.kvcache;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.HexFormat;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** The first vector of docs/reference/keys.md, and what is refused; bindings/conformance/scripts/keys.kvs has the other vectors. */
class PageKeysTest {
  private static final int[] TOKENS = IntStream.range(0, 16).toArray();

  private static byte[] model() {
    byte[] bytes = new byte[PageKeys.BYTES];
    for (int i = 0; i < bytes.length; i++) {
      bytes[i] = (byte) i;
    }
    return bytes;
  }

  @Test
  void firstVector() {
    byte[][] keys = PageKeys.of(TOKENS, 16).fingerprint(model()).compute();
    assertEquals(1, keys.length);
    assertEquals("feb3e26bc3708c148194e9b90dd7257a9096d766d9d75724014af2f8dfeeddcb", HexFormat.of().formatHex(keys[0]));
    assertEquals(0, PageKeys.of(TOKENS, 17).fingerprint(model()).compute().length);
  }

  @Test
  void wrongArguments() {
    Support.refused(Status.NULL_ARGUMENT, () -> PageKeys.of(null, 16));
    Support.refused(Status.NULL_ARGUMENT, () -> PageKeys.of(TOKENS, 16).compute());
    Support.refused(Status.INVALID_ARGUMENT, () -> PageKeys.of(TOKENS, 16).fingerprint(new byte[31]));
    Support.refused(Status.INVALID_ARGUMENT, () -> PageKeys.of(TOKENS, 16).parent(new byte[33], 16));
    Support.refused(Status.INVALID_ARGUMENT, () -> PageKeys.of(TOKENS, 16).parent(null, 16).compute());
    Support.refused(Status.NULL_ARGUMENT, () -> PageKeys.of(TOKENS, 16).media(0, 1, null));
    Support.refused(Status.OUT_OF_RANGE, () -> PageKeys.of(TOKENS, 0).fingerprint(model()).compute());
    Support.refused(Status.OUT_OF_RANGE, () -> PageKeys.of(TOKENS, 16).fingerprint(model()).media(0, 0, model()).compute());
  }
}
