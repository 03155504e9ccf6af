package dev.kvcache;

/**
 * Computes page keys: names of tokens that are equal in every process. {@code docs/reference/keys.md} says what they cover.
 *
 * <pre>{@code
 * byte[][] keys = PageKeys.of(tokens, 16).fingerprint(model).salt(tenant, 0).compute();
 * }</pre>
 */
public final class PageKeys {
  /** Bytes of a key, of a fingerprint and of a media hash. */
  public static final int BYTES = 32;

  private static final String FUNCTION = "PageKeys.compute";

  private final int[] tokens;
  private final long pageSize;
  private final MediaSpans media = new MediaSpans();
  private byte[] fingerprint;
  private byte[] parent;
  private long begin;
  private byte[] adapter;
  private byte[] salt;
  private long saltBegin;

  private PageKeys(int[] tokens, long pageSize) {
    this.tokens = Checks.given("PageKeys.of", "tokens", tokens);
    this.pageSize = pageSize;
  }

  /** Of the whole pages of these tokens. */
  public static PageKeys of(int[] tokens, long pageSize) {
    return new PageKeys(tokens, pageSize);
  }

  /** 32 bytes that name the model: weights, quantisation, tokenizer. Not needed with a parent. */
  public PageKeys fingerprint(byte[] bytes) {
    fingerprint = key("fingerprint", bytes);
    return this;
  }

  /** The name of a LoRA adapter or the like. */
  public PageKeys adapter(byte[] name) {
    adapter = name;
    return this;
  }

  /** Separates tenants. It holds from the page that contains position saltBegin on. */
  public PageKeys salt(byte[] bytes, long saltBegin) {
    salt = bytes;
    this.saltBegin = saltBegin;
    return this;
  }

  /** Continues after the page with this key, which ends at position begin. */
  public PageKeys parent(byte[] key, long begin) {
    parent = key("parent", key);
    this.begin = begin;
    return this;
  }

  /** Adds a span of tokens that stand for an image or the like: its position, its tokens, the hash of its content. By position. */
  public PageKeys media(long begin, long tokens, byte[] hash) {
    media.add(FUNCTION, begin, tokens, hash);
    return this;
  }

  /** The key of each whole page. */
  public byte[][] compute() {
    int pages = pageSize > 0 ? (int) (tokens.length / pageSize) : 0;
    Arena arena = Arena.take(Library.calls());
    try {
      Mem keys = arena.alloc((long) BYTES * pages);
      Mem args = arena.struct(Abi.PageKeysArgs.SIZE);
      args.putLong(Abi.PageKeysArgs.TOKENS, arena.ints(tokens));
      args.putLong(Abi.PageKeysArgs.NUM_TOKENS, tokens.length);
      args.putLong(Abi.PageKeysArgs.PAGE_SIZE, pageSize);
      args.putLong(Abi.PageKeysArgs.BEGIN, begin);
      args.putLong(Abi.PageKeysArgs.PARENT, arena.bytes(parent));
      args.putLong(Abi.PageKeysArgs.FINGERPRINT, arena.bytes(fingerprint));
      args.putLong(Abi.PageKeysArgs.ADAPTER, arena.bytes(adapter));
      args.putLong(Abi.PageKeysArgs.ADAPTER_BYTES, adapter == null ? 0 : adapter.length);
      args.putLong(Abi.PageKeysArgs.SALT, arena.bytes(salt));
      args.putLong(Abi.PageKeysArgs.SALT_BYTES, salt == null ? 0 : salt.length);
      args.putLong(Abi.PageKeysArgs.SALT_BEGIN, saltBegin);
      media.write(arena, args, Abi.PageKeysArgs.NUM_MEDIA);
      arena.check(arena.calls().pageKeys(args.address, keys.address, arena.error.address));
      byte[][] result = new byte[pages][BYTES];
      for (int page = 0; page < pages; page++) {
        keys.buffer.get(keys.at + BYTES * page, result[page]);
      }
      return result;
    } finally {
      arena.giveBack();
    }
  }

  private static byte[] key(String name, byte[] bytes) {
    return key(FUNCTION, name, bytes);
  }

  /** A copy of 32 bytes, or null. */
  static byte[] key(String function, String name, byte[] bytes) {
    if (bytes != null && bytes.length != BYTES) {
      throw KvcacheException.misuse(Status.INVALID_ARGUMENT, function + ": " + name + " has " + bytes.length + " bytes, not " + BYTES);
    }
    return bytes == null ? null : bytes.clone();
  }
}
