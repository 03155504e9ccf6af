package dev.kvcache;

/** Layers that share page tables: what they store for a token, and which keys a query sees. Immutable. */
public final class Group {
  private final int row;
  private final int visibility;
  private final long window;
  private final long chunk;
  private final long pages;
  private final int tokensPerRow;

  private Group(int row, int visibility, long window, long chunk, long pages, int tokensPerRow) {
    this.row = row;
    this.visibility = visibility;
    this.window = window;
    this.chunk = chunk;
    this.pages = pages;
    this.tokensPerRow = tokensPerRow;
  }

  /** A query sees all keys up to its own. */
  public static Group full() {
    return new Group(Abi.KVC_ROW_KV, Abi.KVC_VISIBLE_ALL, 0, 0, 0, 0);
  }

  /** A query sees the last {@code tokens} keys, its own included. */
  public static Group sliding(long tokens) {
    return new Group(Abi.KVC_ROW_KV, Abi.KVC_VISIBLE_WINDOW, tokens, 0, 0, 0);
  }

  /** A query sees the keys of its own chunk up to itself. */
  public static Group chunked(long tokens) {
    return new Group(Abi.KVC_ROW_KV, Abi.KVC_VISIBLE_CHUNK, 0, tokens, 0, 0);
  }

  /** A query sees all keys of the sequence's encoder sequence. */
  public static Group cross() {
    return new Group(Abi.KVC_ROW_KV, Abi.KVC_VISIBLE_ENCODER, 0, 0, 0, 0);
  }

  /** No keys: layers keep states of fixed size a sequence. */
  public static Group recurrent() {
    return new Group(Abi.KVC_ROW_STATE, Abi.KVC_VISIBLE_ALL, 0, 0, 0, 0);
  }

  /** The same with latent rows (multi-head latent attention): a token is one row for all heads, of which V is a part. */
  public Group latent() {
    return new Group(Abi.KVC_ROW_LATENT, visibility, window, chunk, pages, tokensPerRow);
  }

  /** The same with a pool of this many pages; otherwise the cache's capacity decides. */
  public Group pages(long n) {
    return new Group(row, visibility, window, chunk, n, tokensPerRow);
  }

  /**
   * The same with a row for each {@code tokens} tokens, which the caller computes (docs/reference/rows.md). A step takes the rows
   * that it closes, {@code (length + added) / tokens - length / tokens} of each sequence.
   */
  public Group tokensPerRow(int tokens) {
    return new Group(row, visibility, window, chunk, pages, tokens);
  }

  /** The group as its factory makes it: {@code Group.sliding(512).pages(64)}. */
  @Override
  public String toString() {
    String made;
    if (row == Abi.KVC_ROW_STATE) {
      made = "recurrent()";
    } else if (visibility == Abi.KVC_VISIBLE_WINDOW) {
      made = "sliding(" + window + ")";
    } else if (visibility == Abi.KVC_VISIBLE_CHUNK) {
      made = "chunked(" + chunk + ")";
    } else {
      made = visibility == Abi.KVC_VISIBLE_ENCODER ? "cross()" : "full()";
    }
    return "Group." + made + (row == Abi.KVC_ROW_LATENT ? ".latent()" : "") + (pages == 0 ? "" : ".pages(" + pages + ")")
        + (tokensPerRow == 0 ? "" : ".tokensPerRow(" + tokensPerRow + ")");
  }

  void write(Mem all, int at) {
    all.putInt(at, Abi.GroupConfig.SIZE);
    all.putInt(at + Abi.GroupConfig.ROW, row);
    all.putInt(at + Abi.GroupConfig.VISIBILITY, visibility);
    all.putInt(at + Abi.GroupConfig.TOKENS_PER_ROW, tokensPerRow);
    all.putLong(at + Abi.GroupConfig.WINDOW_TOKENS, window);
    all.putLong(at + Abi.GroupConfig.CHUNK_TOKENS, chunk);
    all.putLong(at + Abi.GroupConfig.NUM_PAGES, pages);
  }
}
