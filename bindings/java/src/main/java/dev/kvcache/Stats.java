package dev.kvcache;

/**
 * Counts of one group or of a whole cache.
 *
 * @param sequences sequences that exist
 * @param pagesTotal pages of the group
 * @param pagesUsed pages with at least one reference
 * @param pagesFree the other pages
 * @param pagesShared used pages that belong to two or more sequences
 * @param pagesPeak the most pages that were used at once
 * @param tokensHeld tokens stored, a shared one counted once
 * @param tokensShared of those, tokens that belong to two or more sequences
 * @param tokensLogical what a cache without sharing would hold
 * @param fragmentationBytes bytes of used pages that hold no token
 * @param storageBytes bytes of the pools
 * @param pagesPublished pages that the prefix index holds
 * @param pagesIdle of those, pages that nothing else holds: calls that are short of pages evict them. They count as used
 * @param pagesEvicted pages that such calls have evicted
 * @param prefixAttaches calls of attachPrefix that succeeded (of the cache, in every group)
 * @param prefixTokens tokens that they found, likewise
 */
public record Stats(int sequences, long pagesTotal, long pagesUsed, long pagesFree, long pagesShared, long pagesPeak,
    long tokensHeld, long tokensShared, long tokensLogical, long fragmentationBytes, long storageBytes, long pagesPublished,
    long pagesIdle, long pagesEvicted, long prefixAttaches, long prefixTokens) {}
