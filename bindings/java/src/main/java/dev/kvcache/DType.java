package dev.kvcache;

/** The type of a tensor's elements. */
public enum DType {
  F32(2, 32),
  F16(2, 16),
  BF16(4, 16),
  /** float8_e4m3fn */
  F8E4M3(10, 8),
  /** float8_e5m2 */
  F8E5M2(12, 8),
  I8(0, 8),
  /** Of a layer. Its exports are of {@link #U8}, two elements in each. */
  U4(1, 4),
  /** float4_e2m1fn, of a layer. Its exports are of {@link #U8}: the elements of a row, then its scales. */
  F4E2M1(17, 4),
  /** Stored bytes of float8 and of 4 bits, as exports give them. */
  U8(1, 8),
  I32(0, 32),
  I64(0, 64);

  /** DLPack's code, bits and lanes, as they lie in memory. */
  final int dl;
  private final int bits;

  DType(int code, int bits) {
    this.bits = bits;
    this.dl = code | bits << 8 | 1 << 16;
  }

  /** Bytes of one element; of 4 bits, of two. */
  public int bytes() {
    return (bits + 7) / 8;
  }

  static DType of(int dl) {
    for (DType type : values()) {
      if (type.dl == dl) {
        return type;
      }
    }
    throw KvcacheException.misuse(Status.UNSUPPORTED, "the library has a dtype " + dl + " that this package does not know");
  }
}
