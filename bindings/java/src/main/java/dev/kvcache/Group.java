package dev.kvcache;

/** Layers that share page tables: which keys a query sees. Immutable. */
public final class Group {
  private final int kind;
  private final long window;
  private final long chunk;
  private final long pages;

  private Group(int kind, long window, long chunk, long pages) {
    this.kind = kind;
    this.window = window;
    this.chunk = chunk;
    this.pages = pages;
  }

  /** A query sees all keys up to its own. */
  public static Group full() {
    return new Group(Abi.KVC_GROUP_FULL, 0, 0, 0);
  }

  /** A query sees the last {@code tokens} keys, its own included. */
  public static Group sliding(long tokens) {
    return new Group(Abi.KVC_GROUP_SLIDING, tokens, 0, 0);
  }

  /** A query sees the keys of its own chunk up to itself. */
  public static Group chunked(long tokens) {
    return new Group(Abi.KVC_GROUP_CHUNKED, 0, tokens, 0);
  }

  /** Multi-head latent attention: a token is one row for all heads, of which V is a part. */
  public static Group mla() {
    return new Group(Abi.KVC_GROUP_MLA, 0, 0, 0);
  }

  /** A query sees all keys of the sequence's encoder sequence. */
  public static Group cross() {
    return new Group(Abi.KVC_GROUP_CROSS, 0, 0, 0);
  }

  /** No keys: layers keep states of fixed size a sequence. */
  public static Group recurrent() {
    return new Group(Abi.KVC_GROUP_RECURRENT, 0, 0, 0);
  }

  /** The same with a pool of so many pages; otherwise the cache's capacity decides. */
  public Group pages(long n) {
    return new Group(kind, window, chunk, n);
  }

  void write(Mem all, int at) {
    all.putInt(at, Abi.GroupConfig.SIZE);
    all.putInt(at + Abi.GroupConfig.KIND, kind);
    all.putLong(at + Abi.GroupConfig.WINDOW_TOKENS, window);
    all.putLong(at + Abi.GroupConfig.CHUNK_TOKENS, chunk);
    all.putLong(at + Abi.GroupConfig.NUM_PAGES, pages);
  }
}
