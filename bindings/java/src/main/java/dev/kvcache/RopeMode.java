package dev.kvcache;

/** Who rotates q and k. */
public enum RopeMode {
  /** No rotation, or by the caller. */
  NONE(Abi.KVC_ROPE_NONE),
  /** The library, before it stores k. */
  ON_APPEND(Abi.KVC_ROPE_ON_APPEND),
  /** The library, each time that it reads k. */
  ON_READ(Abi.KVC_ROPE_ON_READ);

  final int code;

  RopeMode(int code) {
    this.code = code;
  }
}
