package dev.kvcache;

/**
 * Counts of one group or of a whole cache.
 *
 * @param sequences that exist
 * @param pagesTotal pages of the group
 * @param pagesUsed with at least one reference
 * @param pagesFree the others
 * @param pagesShared used pages that belong to two or more sequences
 * @param pagesPeak most pages ever used at once
 * @param tokensHeld tokens stored, a shared one counted once
 * @param tokensShared of those, tokens that belong to two or more sequences
 * @param tokensLogical what a cache without sharing would hold
 * @param fragmentationBytes bytes of used pages that hold no token
 * @param storageBytes bytes of the pools
 */
public record Stats(int sequences, long pagesTotal, long pagesUsed, long pagesFree, long pagesShared, long pagesPeak,
    long tokensHeld, long tokensShared, long tokensLogical, long fragmentationBytes, long storageBytes) {}
