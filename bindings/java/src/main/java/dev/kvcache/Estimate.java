package dev.kvcache;

/**
 * What a cache would need.
 *
 * @param pages of all groups: their sum
 * @param pageBytes of one page in all layers of the group; of all groups: 0
 * @param tokenBytes that one token takes in all layers while it is stored
 * @param storageBytes pools
 * @param bookkeepingBytes page tables and sequences
 * @param scratchBytes for the largest batches; of all groups only
 */
public record Estimate(long pages, long pageBytes, long tokenBytes, long storageBytes, long bookkeepingBytes, long scratchBytes) {}
