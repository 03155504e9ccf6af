package dev.kvcache;

/**
 * One message in the form that vLLM's consumers read. The numbers are those of {@link EventRange}.
 *
 * @param epoch of the cache
 * @param begin number of the first event
 * @param end number of the event after the last one: the next to read
 * @param newest number that the next event will get
 * @param count events, or pages of a snapshot
 * @param payload MessagePack; empty if there is no event
 */
public record EventMessage(long epoch, long begin, long end, long newest, long count, byte[] payload) {}
