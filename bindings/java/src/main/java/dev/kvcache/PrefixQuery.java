package dev.kvcache;

/**
 * Tokens, and what their K and V follow from besides the tokens before them. A query copies no tokens: its array may change between
 * calls, and a call reads it once.
 */
public final class PrefixQuery {
  private final int[] tokens;
  private long salt;
  private long saltBegin;
  private byte[] adapter;
  private final MediaSpans media = new MediaSpans();
  private boolean allowAll;

  private PrefixQuery(int[] tokens) {
    this.tokens = tokens;
  }

  /** Tokens, any numbers. */
  public static PrefixQuery of(int... tokens) {
    return new PrefixQuery(tokens);
  }

  /** Tokens under different salts never match; 0 = no salt. */
  public PrefixQuery salt(long bits) {
    salt = bits;
    return this;
  }

  /** The salt holds from the page that contains this token on, so tenants can share the tokens before it. */
  public PrefixQuery saltBegin(long token) {
    saltBegin = token;
    return this;
  }

  /** The name of a LoRA adapter or the like: tokens under different adapters never match. */
  public PrefixQuery adapter(byte[] name) {
    adapter = name;
    return this;
  }

  /**
   * Adds a span of tokens that stand for an image or the like: its position, its tokens, the hash of its content. By position. Tokens
   * match up to the first difference of the media. Spans may lie beyond the tokens.
   */
  public PrefixQuery media(long begin, long tokens, byte[] hash) {
    media.add("PrefixQuery.media", begin, tokens, hash);
    return this;
  }

  /**
   * {@link Cache#matchPrefix} and {@link Cache#attachPrefix} may find all tokens. By default they find one less at most, because
   * an engine needs the logits of the last token.
   */
  public PrefixQuery allowAll() {
    allowAll = true;
    return this;
  }

  Mem write(String function, Arena arena) {
    int[] given = Checks.given(function, "tokens", tokens);
    Mem query = arena.struct(Abi.PrefixQuery.SIZE);
    query.putInt(Abi.PrefixQuery.FLAGS, allowAll ? Abi.KVC_PREFIX_ALLOW_ALL : 0);
    query.putLong(Abi.PrefixQuery.TOKENS, arena.ints(given));
    query.putLong(Abi.PrefixQuery.NUM_TOKENS, given.length);
    query.putLong(Abi.PrefixQuery.SALT, salt);
    query.putLong(Abi.PrefixQuery.SALT_BEGIN, saltBegin);
    query.putLong(Abi.PrefixQuery.ADAPTER, arena.bytes(adapter));
    query.putLong(Abi.PrefixQuery.ADAPTER_BYTES, adapter == null ? 0 : adapter.length);
    media.write(arena, query, Abi.PrefixQuery.NUM_MEDIA);
    return query;
  }
}
