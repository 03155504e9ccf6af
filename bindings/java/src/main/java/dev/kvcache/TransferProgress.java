package dev.kvcache;

/**
 * How far a transfer is.
 *
 * @param done the receiver has everything
 * @param tokens that all layers have received, or sent; with those of the prefix
 * @param bytes of rows and states that were received, or sent
 * @param sequence of a receiver that is done: the new sequence; otherwise 0
 */
public record TransferProgress(boolean done, long tokens, long bytes, long sequence) {
  static TransferProgress of(Mem info) {
    return new TransferProgress(info.getInt(Abi.TransferInfo.DONE) != 0, info.getLong(Abi.TransferInfo.TOKENS),
        info.getLong(Abi.TransferInfo.BYTES), info.getLong(Abi.TransferInfo.SEQUENCE));
  }
}
