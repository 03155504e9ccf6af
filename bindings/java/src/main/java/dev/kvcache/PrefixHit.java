package dev.kvcache;

/**
 * What the prefix index holds of a query.
 *
 * @param tokens the longest prefix that every group can serve
 * @param copiedTokens of these, the tokens in a last page that is not full; {@link Cache#attachPrefix} copies that page
 * @param knownTokens tokens that were published in this order, whatever is left of their pages
 * @param limitedBy the group because of which `tokens` is below what was searched for and known; -1 = none
 * @param loadTokens with tiers: what `tokens` would be after {@link Cache#loadPrefix}; else `tokens`
 * @param loadNs with tiers: how long that load takes in nanoseconds, as they measured it; 0 = nothing to load, or not measured
 */
public record PrefixHit(long tokens, long copiedTokens, long knownTokens, int limitedBy, long loadTokens, long loadNs) {
  static PrefixHit of(Mem hit) {
    return new PrefixHit(hit.getLong(Abi.PrefixHit.TOKENS), hit.getLong(Abi.PrefixHit.COPIED_TOKENS),
        hit.getLong(Abi.PrefixHit.KNOWN_TOKENS), hit.getInt(Abi.PrefixHit.LIMITED_BY),
        hit.getLong(Abi.PrefixHit.LOAD_TOKENS), hit.getLong(Abi.PrefixHit.LOAD_NS));
  }
}
