package dev.kvcache;

/**
 * Pages of groups that went between the pools and all tiers, since the cache was made.
 *
 * @param pagesWaiting queued for their store, or being stored; 0: the tiers have all that they will get
 * @param pagesDropped evicted before they were copied, or too many for the queue
 * @param pagesNotStored that a tier refused, or failed to store
 * @param pagesLoading of loads that run
 * @param pagesNotLoaded that a tier no longer had, or whose bytes were not right
 * @param sequencesSuspended that are suspended now
 */
public record TierTraffic(int numTiers, long pagesWaiting, long pagesStored, long pagesDropped, long pagesNotStored,
    long pagesLoading, long pagesLoaded, long pagesNotLoaded, long sequencesSuspended) {
  static TierTraffic of(Mem traffic) {
    return new TierTraffic(traffic.getInt(Abi.TierTraffic.NUM_TIERS), traffic.getLong(Abi.TierTraffic.PAGES_WAITING),
        traffic.getLong(Abi.TierTraffic.PAGES_STORED), traffic.getLong(Abi.TierTraffic.PAGES_DROPPED),
        traffic.getLong(Abi.TierTraffic.PAGES_NOT_STORED), traffic.getLong(Abi.TierTraffic.PAGES_LOADING),
        traffic.getLong(Abi.TierTraffic.PAGES_LOADED), traffic.getLong(Abi.TierTraffic.PAGES_NOT_LOADED),
        traffic.getLong(Abi.TierTraffic.SEQUENCES_SUSPENDED));
  }
}
