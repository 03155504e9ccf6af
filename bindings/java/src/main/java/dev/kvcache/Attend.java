package dev.kvcache;

/**
 * Queries, new K and V, and the output of a layer, for {@link Step#attend}. It can be used again with other tensors and
 * options, so a decode loop needs one.
 */
public final class Attend extends Args {
  private static final Fields FIELDS = new Fields("q", Abi.AttendArgs.Q, "k", Abi.AttendArgs.K, "v", Abi.AttendArgs.V, "out!",
      Abi.AttendArgs.OUT, "lse!", Abi.AttendArgs.LSE, "alibiSlopes", Abi.AttendArgs.ALIBI_SLOPES, "sinks", Abi.AttendArgs.SINKS,
      "ropeCosSin", Abi.AttendArgs.ROPE_COS_SIN, "wUk", Abi.AttendArgs.W_UK, "wUv", Abi.AttendArgs.W_UV,
      "indices", Abi.AttendArgs.INDICES, "relBias", Abi.AttendArgs.REL_BIAS, "keyBias", Abi.AttendArgs.KEY_BIAS,
      "mask", Abi.AttendArgs.MASK);

  private int flags;
  private int indexBlock;
  private double softmaxScale;
  private double softcap;

  private Attend() {
    super(FIELDS);
  }

  /** Stores k and v, then attends: q [T, qHeads, dim], k and v [T, kvHeads, dim], out [T, qHeads, vDim]; F32, F16 or BF16. */
  public static Attend of(Tensor q, Tensor k, Tensor v, Tensor out) {
    return new Attend().q(q).k(k).v(v).out(out);
  }

  /** Attends over stored keys: the layer was appended before, reads another layer's K and V, or is a cross layer. */
  public static Attend of(Tensor q, Tensor out) {
    return new Attend().q(q).out(out);
  }

  public Attend q(Tensor tensor) {
    tensors[0] = tensor;
    return this;
  }

  public Attend k(Tensor tensor) {
    tensors[1] = tensor;
    return this;
  }

  public Attend v(Tensor tensor) {
    tensors[2] = tensor;
    return this;
  }

  public Attend out(Tensor tensor) {
    tensors[3] = tensor;
    return this;
  }

  /** [T, qHeads] F32, written: natural-log sum of exponentials of the scores. */
  public Attend lse(Tensor tensor) {
    tensors[4] = tensor;
    return this;
  }

  /** [qHeads] F32: slope * |pQ - pK| is subtracted from scores. */
  public Attend alibiSlopes(Tensor tensor) {
    tensors[5] = tensor;
    return this;
  }

  /** [qHeads] F32: a logit of each head that takes part in the softmax, without a value. */
  public Attend sinks(Tensor tensor) {
    tensors[6] = tensor;
    return this;
  }

  /** As {@link Append#ropeCosSin}, for q, and for k if it is given. */
  public Attend ropeCosSin(Tensor tensor) {
    tensors[7] = tensor;
    return this;
  }

  /** MLA: up-projections of K, [qHeads, Dn, latentDim], and of V, [qHeads, Dv, latentDim]. */
  public Attend upProjections(Tensor wUk, Tensor wUv) {
    tensors[8] = wUk;
    tensors[9] = wUv;
    return this;
  }

  /**
   * [T, 1 or kvHeads, n] I32: a query attends only to the tokens that its list names, and of these to those that it sees without
   * a list. An entry i names the tokens [i * block, (i + 1) * block); negative ones are padding. Null, with block 0: no lists.
   */
  public Attend indices(Tensor tensor, int block) {
    tensors[10] = tensor;
    indexBlock = block;
    return this;
  }

  /**
   * [qHeads, E] or [T, qHeads, E] F32: the head's entry at pQ - pK is added to scores. Where there is none, the nearest
   * entry is added, or 0 if zeroBeyond.
   */
  public Attend relBias(Tensor tensor, boolean zeroBeyond) {
    tensors[11] = tensor;
    return flag(Abi.KVC_ATTEND_REL_BIAS_ZERO, zeroBeyond);
  }

  /** [sequences, keys, 1 or kvHeads] F32: the entry of the row and key is added to scores. Keys count as in indices. */
  public Attend keyBias(Tensor tensor) {
    tensors[12] = tensor;
    return this;
  }

  /** [T, keys] or [T, 1 or kvHeads, keys] U8: 0 hides a key that the query would see. */
  public Attend mask(Tensor tensor) {
    tensors[13] = tensor;
    return this;
  }

  /** 0 = the layer's. */
  public Attend softmaxScale(double scale) {
    softmaxScale = scale;
    return this;
  }

  /** Scores become cap * tanh(score / cap); 0 = none. */
  public Attend softcap(double cap) {
    softcap = cap;
    return this;
  }

  /** A query sees every key of its row, also those of later tokens. */
  public Attend nonCausal(boolean on) {
    return flag(Abi.KVC_ATTEND_NON_CAUSAL, on);
  }

  /** With slopes, slope * (pQ - pK) is subtracted from scores. */
  public Attend alibiSigned(boolean on) {
    return flag(Abi.KVC_ATTEND_ALIBI_SIGNED, on);
  }

  /** This layer ignores the step's spans. */
  public Attend noSpans(boolean on) {
    return flag(Abi.KVC_ATTEND_NO_SPANS, on);
  }

  /** The window, or chunk, of every query begins where that of the row's first new token does. */
  public Attend stepWindow(boolean on) {
    return flag(Abi.KVC_ATTEND_STEP_WINDOW, on);
  }

  /** Only keys of earlier steps. */
  public Attend past(boolean on) {
    return flag(Abi.KVC_ATTEND_PAST, on);
  }

  /** Only keys of this step's tokens. */
  public Attend self(boolean on) {
    return flag(Abi.KVC_ATTEND_SELF, on);
  }

  private Attend flag(int bit, boolean on) {
    flags = on ? flags | bit : flags & ~bit;
    return this;
  }

  void write(String function, Arena arena) {
    Mem c = arena.attend;
    c.putInt(Abi.AttendArgs.FLAGS, flags);
    c.putDouble(Abi.AttendArgs.SOFTMAX_SCALE, softmaxScale);
    c.putDouble(Abi.AttendArgs.SOFTCAP, softcap);
    c.putInt(Abi.AttendArgs.INDEX_BLOCK, indexBlock);
    writeTensors(function, arena, c);
  }
}
