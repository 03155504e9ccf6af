package dev.kvcache;

import java.util.List;

/**
 * Events that follow each other, or the pages of a snapshot.
 *
 * @param epoch of the cache: random, never 0
 * @param begin number of the first event. Above the number that was wanted: the ones between are lost, and a snapshot is needed
 * @param end number of the event after the last one: the next to read
 * @param newest number that the next event will get
 * @param events in order
 */
public record EventRange(long epoch, long begin, long end, long newest, List<Event> events) {}
