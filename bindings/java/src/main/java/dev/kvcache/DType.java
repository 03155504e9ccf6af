package dev.kvcache;

/** The type of a tensor's elements. */
public enum DType {
  F32(2, 4),
  F16(2, 2),
  BF16(4, 2),
  /** float8_e4m3fn */
  F8E4M3(10, 1),
  /** float8_e5m2 */
  F8E5M2(12, 1),
  I8(0, 1),
  /** Stored bytes of float8, as exports give them. */
  U8(1, 1),
  I32(0, 4),
  I64(0, 8);

  /** DLPack's code, bits and lanes, as they lie in memory. */
  final int dl;
  private final int bytes;

  DType(int code, int bytes) {
    this.bytes = bytes;
    this.dl = code | 8 * bytes << 8 | 1 << 16;
  }

  /** Bytes of one element. */
  public int bytes() {
    return bytes;
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
