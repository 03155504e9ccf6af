package dev.kvcache;

import java.util.List;
import java.util.stream.IntStream;

/**
 * What the prefix index holds of a query.
 *
 * @param tokens the longest prefix that every group can serve
 * @param copiedTokens of these, the tokens in a last page that is not full; {@link Cache#attachPrefix} copies that page
 * @param knownTokens tokens that were published in this order, whatever is left of their pages
 * @param limitedBy the group because of which `tokens` is below what was searched for and known; -1 = none
 * @param loadTokens with tiers: what `tokens` would be after {@link Cache#loadPrefix}, without tokens that are faster to compute;
 *     else `tokens`
 * @param loadNs with tiers: how long that load takes in nanoseconds, as they measured it; 0 = nothing to load, or not measured
 * @param tokenNs how long it takes to compute one token in nanoseconds, as the cache measured it on the CPU; 0 = not measured
 * @param tierTokens how many tokens after `tokens` each tier has, in the order in which the tiers were added. Only
 *     {@link Cache#matchPrefix} and {@link Cache#loadPrefix} search tiers
 */
public record PrefixHit(long tokens, long copiedTokens, long knownTokens, int limitedBy, long loadTokens, long loadNs, long tokenNs,
    List<Long> tierTokens) {
  static PrefixHit of(Mem hit) {
    List<Long> tiers = IntStream.range(0, hit.getInt(Abi.PrefixHit.NUM_TIERS))
        .mapToObj(tier -> hit.getLong(Abi.PrefixHit.TIER_TOKENS + 8 * tier)).toList();
    return new PrefixHit(hit.getLong(Abi.PrefixHit.TOKENS), hit.getLong(Abi.PrefixHit.COPIED_TOKENS),
        hit.getLong(Abi.PrefixHit.KNOWN_TOKENS), hit.getInt(Abi.PrefixHit.LIMITED_BY),
        hit.getLong(Abi.PrefixHit.LOAD_TOKENS), hit.getLong(Abi.PrefixHit.LOAD_NS), hit.getLong(Abi.PrefixHit.TOKEN_NS),
        tiers);
  }
}
