package dev.kvcache;

/** How a layer stores its rows. docs/reference/formats.md has the bytes of each format. */
public enum RowFormat {
  /** All dims have the layer's dtype. */
  DTYPE(Abi.KVC_ROW_FORMAT_DTYPE),
  /**
   * The packed row of DeepSeek-V3.2, 656 bytes, as vLLM and FlashMLA store it. headDim is 576, latentDim is 512, and the dtype stays at its
   * default. Views, exports and storage of the caller are uint8.
   */
  FP8_DS_MLA(Abi.KVC_ROW_FORMAT_FP8_DS_MLA),
  /** The row of DeepSeek-V4, 576 bytes, with 8 bytes of scales after the rows of the page: an MLA row of 512 dims, all of which are V. */
  FP8_DS_V4(Abi.KVC_ROW_FORMAT_FP8_DS_V4),
  /** Float4_e2m1fn, with a power of two for each 32 dims after the rows of the page. */
  MXFP4(Abi.KVC_ROW_FORMAT_MXFP4),
  /** Float8_e4m3fn, with a power of two for each 32 dims after the rows of the page. */
  MXFP8(Abi.KVC_ROW_FORMAT_MXFP8),
  /** Float8_e4m3fn, with a float32 scale for each 128 dims after the rows of the page. */
  FP8_BLOCKS(Abi.KVC_ROW_FORMAT_FP8_BLOCKS),
  /** Float4_e2m1fn, with a float8_e4m3fn scale for each 16 dims after the rows of the page. */
  NVFP4(Abi.KVC_ROW_FORMAT_NVFP4),
  /** The row of DeepSeek-V3.2 with 352 bytes: an MLA row of 576 dims, the first 512 of which are V. */
  NVFP4_DS_MLA(Abi.KVC_ROW_FORMAT_NVFP4_DS_MLA);

  final int code;

  RowFormat(int code) {
    this.code = code;
  }
}
