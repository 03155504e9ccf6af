package dev.kvcache;

/**
 * How a model was stretched beyond the length it was trained for: "rope_scaling" of its config.json. docs/reference/rope.md has the
 * formulas. Settings of other kinds than its own must stay as they are.
 */
public final class RopeScaling {
  /** "rope_type" of a model's config.json. */
  public enum Kind {
    LINEAR(Abi.KVC_ROPE_SCALING_LINEAR),
    LLAMA3(Abi.KVC_ROPE_SCALING_LLAMA3),
    YARN(Abi.KVC_ROPE_SCALING_YARN),
    LONGROPE(Abi.KVC_ROPE_SCALING_LONGROPE);

    final int code;

    Kind(int code) {
      this.code = code;
    }
  }

  private final Kind kind;
  private final double factor;
  private long originalMaxPosition;
  private boolean noTruncate;
  private double lowFreqFactor;
  private double highFreqFactor;
  private double betaFast;
  private double betaSlow;
  private double attentionFactor;
  private double mscale;
  private double mscaleAllDim;
  private double[] shortFactors;
  private double[] longFactors;

  private RopeScaling(Kind kind, double factor) {
    this.kind = kind;
    this.factor = factor;
  }

  /** f(i) / factor. */
  public static RopeScaling linear(double factor) {
    return new RopeScaling(Kind.LINEAR, factor);
  }

  /** Long waves / factor, short ones unchanged, blended between the two factors. */
  public static RopeScaling llama3(double factor, double lowFreqFactor, double highFreqFactor, long originalMaxPosition) {
    RopeScaling scaling = new RopeScaling(Kind.LLAMA3, factor);
    scaling.lowFreqFactor = lowFreqFactor;
    scaling.highFreqFactor = highFreqFactor;
    scaling.originalMaxPosition = originalMaxPosition;
    return scaling;
  }

  /** Blended by pair between beta_fast and beta_slow rotations. */
  public static RopeScaling yarn(double factor, long originalMaxPosition) {
    RopeScaling scaling = new RopeScaling(Kind.YARN, factor);
    scaling.originalMaxPosition = originalMaxPosition;
    return scaling;
  }

  /** A factor for each pair, one set for short and one for long sequences. */
  public static RopeScaling longrope(double[] shortFactors, double[] longFactors, double factor, long originalMaxPosition) {
    RopeScaling scaling = new RopeScaling(Kind.LONGROPE, factor);
    scaling.shortFactors = shortFactors == null ? null : shortFactors.clone();
    scaling.longFactors = longFactors == null ? null : longFactors.clone();
    scaling.originalMaxPosition = originalMaxPosition;
    return scaling;
  }

  /** yarn: where the blend begins and ends, in turns; 0 = 32 and 1. */
  public RopeScaling beta(double fast, double slow) {
    betaFast = fast;
    betaSlow = slow;
    return this;
  }

  /** yarn, longrope: multiplies cos and sin of q and of k; 0 = from the mscales, or from the factor. */
  public RopeScaling attentionFactor(double value) {
    attentionFactor = value;
    return this;
  }

  /** yarn: both together give the default of attentionFactor, as in DeepSeek. */
  public RopeScaling mscale(double value, double allDim) {
    mscale = value;
    mscaleAllDim = allDim;
    return this;
  }

  /** yarn: the bounds of the blend are not rounded to whole pairs ("truncate": false). */
  public RopeScaling noTruncate() {
    noTruncate = true;
    return this;
  }

  long write(Arena arena) {
    Mem c = arena.struct(Abi.RopeScaling.SIZE);
    c.putInt(Abi.RopeScaling.KIND, kind.code);
    c.putInt(Abi.RopeScaling.FLAGS, noTruncate ? Abi.KVC_ROPE_SCALING_NO_TRUNCATE : 0);
    c.putLong(Abi.RopeScaling.ORIGINAL_MAX_POSITION, originalMaxPosition);
    c.putDouble(Abi.RopeScaling.FACTOR, factor);
    c.putDouble(Abi.RopeScaling.LOW_FREQ_FACTOR, lowFreqFactor);
    c.putDouble(Abi.RopeScaling.HIGH_FREQ_FACTOR, highFreqFactor);
    c.putDouble(Abi.RopeScaling.BETA_FAST, betaFast);
    c.putDouble(Abi.RopeScaling.BETA_SLOW, betaSlow);
    c.putDouble(Abi.RopeScaling.ATTENTION_FACTOR, attentionFactor);
    c.putDouble(Abi.RopeScaling.MSCALE, mscale);
    c.putDouble(Abi.RopeScaling.MSCALE_ALL_DIM, mscaleAllDim);
    c.putLong(Abi.RopeScaling.SHORT_FACTORS, arena.doubles(shortFactors));
    c.putLong(Abi.RopeScaling.LONG_FACTORS, arena.doubles(longFactors));
    c.putInt(Abi.RopeScaling.NUM_SHORT_FACTORS, shortFactors == null ? 0 : shortFactors.length);
    c.putInt(Abi.RopeScaling.NUM_LONG_FACTORS, longFactors == null ? 0 : longFactors.length);
    return c.address;
  }
}
