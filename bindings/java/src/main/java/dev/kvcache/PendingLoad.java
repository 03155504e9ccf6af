package dev.kvcache;

/**
 * What a sequence of {@link LoadJob#attach} still waits for.
 *
 * @param readyLayers the layers before this one are ready
 * @param tokens of the sequence, whose pages the job loads
 * @param pages of all groups that the job loads
 * @param pagesLoaded how many of these are in the pools
 * @param failed the load cannot complete, so the sequence will become shorter
 */
public record PendingLoad(int readyLayers, long tokens, long pages, long pagesLoaded, boolean failed) {
  static PendingLoad of(Mem info) {
    return new PendingLoad(info.getInt(Abi.PendingInfo.READY_LAYERS), info.getLong(Abi.PendingInfo.TOKENS),
        info.getLong(Abi.PendingInfo.PAGES), info.getLong(Abi.PendingInfo.PAGES_LOADED),
        info.getInt(Abi.PendingInfo.FAILED) != 0);
  }
}
