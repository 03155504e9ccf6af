package dev.kvcache;

/** How a layer of a latent group (MLA) stores its rows. */
public enum RowFormat {
  /** All dims have the layer's dtype. */
  DTYPE(Abi.KVC_ROW_FORMAT_DTYPE),
  /**
   * The packed row of DeepSeek-V3.2, 656 bytes, as vLLM and FlashMLA store it. headDim is 576, latentDim is 512, and the dtype stays at its
   * default. Views, exports and storage of the caller are uint8.
   */
  FP8_DS_MLA(Abi.KVC_ROW_FORMAT_FP8_DS_MLA);

  final int code;

  RowFormat(int code) {
    this.code = code;
  }
}
