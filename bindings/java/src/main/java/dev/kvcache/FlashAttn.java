package dev.kvcache;

/**
 * Arguments of {@link Context#flashAttnWithKvCache}: FlashAttention's own names and shapes. B rows, Sq and Sn queries and new
 * tokens of a row, Tq and Tn those of all rows. Index tensors are I32. May be used again, with other tensors.
 */
public final class FlashAttn extends Args {
  private static final Fields FIELDS = new Fields(
      "q", Abi.FlashAttnArgs.Q, "kCache+", Abi.FlashAttnArgs.K_CACHE, "vCache+", Abi.FlashAttnArgs.V_CACHE,
      "k", Abi.FlashAttnArgs.K, "v", Abi.FlashAttnArgs.V, "qv", Abi.FlashAttnArgs.QV, "out!", Abi.FlashAttnArgs.OUT,
      "softmaxLse!", Abi.FlashAttnArgs.SOFTMAX_LSE, "cacheSeqlens", Abi.FlashAttnArgs.CACHE_SEQLENS,
      "sequsedK", Abi.FlashAttnArgs.SEQUSED_K, "cacheBatchIdx", Abi.FlashAttnArgs.CACHE_BATCH_IDX,
      "cacheLeftpad", Abi.FlashAttnArgs.CACHE_LEFTPAD, "blockTable", Abi.FlashAttnArgs.BLOCK_TABLE,
      "cuSeqlensQ", Abi.FlashAttnArgs.CU_SEQLENS_Q, "cuSeqlensKNew", Abi.FlashAttnArgs.CU_SEQLENS_K_NEW,
      "rotaryCos", Abi.FlashAttnArgs.ROTARY_COS, "rotarySin", Abi.FlashAttnArgs.ROTARY_SIN,
      "rotarySeqlens", Abi.FlashAttnArgs.ROTARY_SEQLENS, "qDescale", Abi.FlashAttnArgs.Q_DESCALE,
      "kDescale", Abi.FlashAttnArgs.K_DESCALE, "vDescale", Abi.FlashAttnArgs.V_DESCALE,
      "alibiSlopes", Abi.FlashAttnArgs.ALIBI_SLOPES, "sinks", Abi.FlashAttnArgs.SINKS,
      "indices", Abi.FlashAttnArgs.INDICES);

  private int flags;
  private int windowLeft;
  private int windowRight;
  private int attentionChunk;
  private int numSplits;
  private double softmaxScale;
  private double softcap;

  private FlashAttn() {
    super(FIELDS);
  }

  /** Attention of q over a cache, into out. */
  public static FlashAttn of(Tensor q, Tensor kCache, Tensor vCache, Tensor out) {
    return new FlashAttn().q(q).kCache(kCache).vCache(vCache).out(out);
  }

  /** [B, Sq, Hq, D], or with cuSeqlensQ [>= Tq, Hq, D]. */
  public FlashAttn q(Tensor tensor) {
    tensors[0] = tensor;
    return this;
  }

  /** [pages, pageSize, Hkv, D] with blockTable, else [rows, capacity, Hkv, D]. Written if k is given. */
  public FlashAttn kCache(Tensor tensor) {
    tensors[1] = tensor;
    return this;
  }

  /** [likewise, Dv], of the same dtype. */
  public FlashAttn vCache(Tensor tensor) {
    tensors[2] = tensor;
    return this;
  }

  /** [B, Sn, Hkv, D], or with cuSeqlensKNew [>= Tn, Hkv, D]: stored after each row's cached tokens first; with v. */
  public FlashAttn k(Tensor tensor) {
    tensors[3] = tensor;
    return this;
  }

  /** [likewise, Dv]; with k. */
  public FlashAttn v(Tensor tensor) {
    tensors[4] = tensor;
    return this;
  }

  /** As q, with Dv for D: scores are q.k + qv.v (absorbed latent attention). */
  public FlashAttn qv(Tensor tensor) {
    tensors[5] = tensor;
    return this;
  }

  /** Written; [B, Sq, Hq, Dv] or [>= Tq, Hq, Dv]; F32, F16 or BF16. */
  public FlashAttn out(Tensor tensor) {
    tensors[6] = tensor;
    return this;
  }

  /** Written; [B, Hq, Sq], or with cuSeqlensQ [Hq, >= Tq], F32. */
  public FlashAttn softmaxLse(Tensor tensor) {
    tensors[7] = tensor;
    return this;
  }

  /** [B], or of rank 0: tokens in each row's cache, without the new ones. */
  public FlashAttn cacheSeqlens(Tensor tensor) {
    tensors[8] = tensor;
    return this;
  }

  /** The other name of cacheSeqlens; only one of them may be given. */
  public FlashAttn sequsedK(Tensor tensor) {
    tensors[9] = tensor;
    return this;
  }

  /** [B]: which cache row each row has. */
  public FlashAttn cacheBatchIdx(Tensor tensor) {
    tensors[10] = tensor;
    return this;
  }

  /** [B]: first valid key of each row. */
  public FlashAttn cacheLeftpad(Tensor tensor) {
    tensors[11] = tensor;
    return this;
  }

  /** [rows, maxPages]: page ids in order. */
  public FlashAttn blockTable(Tensor tensor) {
    tensors[12] = tensor;
    return this;
  }

  /** [B + 1], from 0 on, not descending. */
  public FlashAttn cuSeqlensQ(Tensor tensor) {
    tensors[13] = tensor;
    return this;
  }

  /** [B + 1]: the same of k and v. */
  public FlashAttn cuSeqlensKNew(Tensor tensor) {
    tensors[14] = tensor;
    return this;
  }

  /** [positions, rotaryDim / 2]: the first dims of q and k are rotated; with rotarySin, only with k. */
  public FlashAttn rotaryCos(Tensor tensor) {
    tensors[15] = tensor;
    return this;
  }

  public FlashAttn rotarySin(Tensor tensor) {
    tensors[16] = tensor;
    return this;
  }

  /** [B]: positions count from here, not from cacheSeqlens; ignored without rotaryCos. */
  public FlashAttn rotarySeqlens(Tensor tensor) {
    tensors[17] = tensor;
    return this;
  }

  /** [B, Hkv] F32, with float8 q: what q is to be multiplied by. */
  public FlashAttn qDescale(Tensor tensor) {
    tensors[18] = tensor;
    return this;
  }

  /** [B, Hkv] F32, with a float8 cache: what kCache is to be multiplied by. */
  public FlashAttn kDescale(Tensor tensor) {
    tensors[19] = tensor;
    return this;
  }

  /** [B, Hkv]: the same for v. */
  public FlashAttn vDescale(Tensor tensor) {
    tensors[20] = tensor;
    return this;
  }

  /** [Hq] or [B, Hq] F32: slope * |pQ - pK| is subtracted from scores. */
  public FlashAttn alibiSlopes(Tensor tensor) {
    tensors[21] = tensor;
    return this;
  }

  /** [Hq] F32, F16 or BF16: a logit of each head that joins the softmax without a value. */
  public FlashAttn sinks(Tensor tensor) {
    tensors[22] = tensor;
    return this;
  }

  /** A query sees no later key. */
  public FlashAttn causal(boolean on) {
    return flag(Abi.KVC_FLASH_ATTN_CAUSAL, on);
  }

  /** With slopes, slope * (pQ - pK) is subtracted from scores. */
  public FlashAttn alibiSigned(boolean on) {
    return flag(Abi.KVC_FLASH_ATTN_ALIBI_SIGNED, on);
  }

  /** Rotated pairs are dims 2i, 2i + 1; else i, i + rotaryDim / 2. */
  public FlashAttn rotaryInterleaved(boolean on) {
    return flag(Abi.KVC_FLASH_ATTN_ROTARY_INTERLEAVED, on);
  }

  /** A query at p sees keys from p - left to p + right; -1 = no bound. */
  public FlashAttn window(int left, int right) {
    windowLeft = Math.max(left, 0);
    windowRight = Math.max(right, 0);
    return flag(Abi.KVC_FLASH_ATTN_WINDOW_LEFT, left >= 0).flag(Abi.KVC_FLASH_ATTN_WINDOW_RIGHT, right >= 0);
  }

  /** Of those, keys of the query's own chunk; 0 = all. */
  public FlashAttn attentionChunk(int tokens) {
    attentionChunk = tokens;
    return this;
  }

  /** Parts that each row's keys are cut into; 0 = as it pays. */
  public FlashAttn numSplits(int n) {
    numSplits = n;
    return this;
  }

  /**
   * [B, Sq, 1 or Hkv, n] I32, or with cuSeqlensQ [>= Tq, 1 or Hkv, n]: a query attends to these slots of kCache alone, page *
   * pageSize + offset; negative: padding. Without lengths, tables, windows and new tokens.
   */
  public FlashAttn indices(Tensor tensor) {
    tensors[23] = tensor;
    return this;
  }

  /** 0 = D^-0.5, with qv (D + Dv)^-0.5. */
  public FlashAttn softmaxScale(double scale) {
    softmaxScale = scale;
    return this;
  }

  /** Scores become cap * tanh(score / cap); 0 = none. */
  public FlashAttn softcap(double cap) {
    softcap = cap;
    return this;
  }

  private FlashAttn flag(int bit, boolean on) {
    flags = on ? flags | bit : flags & ~bit;
    return this;
  }

  Mem write(String function, Arena arena) {
    Mem c = arena.struct(Abi.FlashAttnArgs.SIZE);
    Tensor k = tensors[3];
    Tensor v = tensors[4];
    writeTensors(function, arena, c, k != null || v != null);
    // Other threads may set k and v meanwhile: the library gets those of which the caches were checked.
    c.putLong(Abi.FlashAttnArgs.K, arena.tensor(function, "k", 3, k));
    c.putLong(Abi.FlashAttnArgs.V, arena.tensor(function, "v", 4, v));
    c.putInt(Abi.FlashAttnArgs.FLAGS, flags);
    c.putDouble(Abi.FlashAttnArgs.SOFTMAX_SCALE, softmaxScale);
    c.putDouble(Abi.FlashAttnArgs.SOFTCAP, softcap);
    c.putInt(Abi.FlashAttnArgs.WINDOW_LEFT, windowLeft);
    c.putInt(Abi.FlashAttnArgs.WINDOW_RIGHT, windowRight);
    c.putInt(Abi.FlashAttnArgs.ATTENTION_CHUNK, attentionChunk);
    c.putInt(Abi.FlashAttnArgs.NUM_SPLITS, numSplits);
    return c;
  }
}
