package dev.kvcache;

/**
 * What a publish did.
 *
 * @param knownTokens tokens of the query that the index holds now: fewer than all if it is full of pages in use
 * @param pagesAdded pages that the index did not hold before, in all groups
 * @param pagesFreed pages of the sequence that became free, because the index had others with the same tokens
 */
public record PrefixPublished(long knownTokens, long pagesAdded, long pagesFreed) {}
