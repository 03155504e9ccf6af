package dev.kvcache;

/**
 * Conversions between float and the 16-bit types, whose bits a short holds. They round to the nearest value, and ties to even.
 *
 * <pre>{@code
 * ShortBuffer k = tensor.shortBuffer(); // of a tensor of DType.BF16
 * k.put(Halves.toBf16(values));
 * }</pre>
 */
public final class Halves {
  private Halves() {}

  /** The bits of a value as bfloat16. */
  public static short toBf16(float value) {
    int bits = Float.floatToRawIntBits(value);
    if (Float.isNaN(value)) {
      return (short) (bits >>> 16 | 0x40); // a NaN must not become an infinity
    }
    return (short) (bits + 0x7fff + (bits >>> 16 & 1) >>> 16);
  }

  /** The value of bfloat16 bits, exactly. */
  public static float fromBf16(short bits) {
    return Float.intBitsToFloat(bits << 16);
  }

  /** The bits of a value as float16; beyond 65504 it becomes infinite. */
  public static short toF16(float value) {
    int bits = Float.floatToRawIntBits(value);
    int sign = bits >>> 16 & 0x8000;
    int magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) {
      return (short) (sign | 0x7e00); // NaN
    }
    if (magnitude >= 0x47800000) {
      return (short) (sign | 0x7c00); // 2^16 and above
    }
    if (magnitude < 0x38800000) { // below 2^-14: float16's distance is 2^-24 there, and so is float's from 0.5 on
      return (short) (sign | Float.floatToRawIntBits(Float.intBitsToFloat(magnitude) + 0.5f) - 0x3f000000);
    }
    return (short) (sign | (magnitude + 0xfff + (magnitude >>> 13 & 1) >>> 13) - 0x1c000); // the bias is 15 in place of 127
  }

  /** The value of float16 bits, exactly. */
  public static float fromF16(short bits) {
    int sign = (bits & 0x8000) << 16;
    int exponent = bits >>> 10 & 0x1f;
    int fraction = bits & 0x3ff;
    if (exponent == 0) { // a multiple of 2^-24
      return Float.intBitsToFloat(sign | Float.floatToRawIntBits(fraction * 0x1p-24f));
    }
    int biased = exponent == 0x1f ? 0xff : exponent + 112;
    return Float.intBitsToFloat(sign | biased << 23 | fraction << 13);
  }

  /** The bits of values as bfloat16. */
  public static short[] toBf16(float[] values) {
    short[] bits = new short[values.length];
    for (int i = 0; i < bits.length; i++) {
      bits[i] = toBf16(values[i]);
    }
    return bits;
  }

  /** The values of bfloat16 bits. */
  public static float[] fromBf16(short[] bits) {
    float[] values = new float[bits.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = fromBf16(bits[i]);
    }
    return values;
  }

  /** The bits of values as float16. */
  public static short[] toF16(float[] values) {
    short[] bits = new short[values.length];
    for (int i = 0; i < bits.length; i++) {
      bits[i] = toF16(values[i]);
    }
    return bits;
  }

  /** The values of float16 bits. */
  public static float[] fromF16(short[] bits) {
    float[] values = new float[bits.length];
    for (int i = 0; i < values.length; i++) {
      values[i] = fromF16(bits[i]);
    }
    return values;
  }
}
