package dev.kvcache;

/**
 * A whole page that became findable in the prefix index or stopped being so, or all of them did.
 *
 * @param number in the epoch, from 0; in a snapshot 0
 * @param kind what happened
 * @param group layer group; -1 = all
 * @param key the page's key ({@link PageKeys}), 32 bytes; null if all pages are cleared
 * @param parent stored: key of the page before it; null for the first page of a sequence
 * @param position stored: of its first token in its sequence
 * @param tokens stored: the ids of its tokens; else none
 * @param session stored: that alone published it; 0 = none, or several
 * @param salted stored: whether its salt is not 0
 * @param tier where the page is: 0 = in the pools; i = in the tier that was added i-th, counted from 1
 */
public record Event(long number, Kind kind, int group, byte[] key, byte[] parent, long position, int[] tokens, long session,
    boolean salted, int tier) {
  /** What an event tells. */
  public enum Kind {
    /** The page with this key can be found in this group. */
    STORED,
    /** It cannot any more: it was evicted or dropped. */
    REMOVED,
    /** No page can be found in any group or tier. */
    CLEARED
  }

  static Event of(Mem event, Mem tokens, int pageSize) {
    int code = event.getInt(Abi.Event.KIND);
    Kind kind = code == Abi.KVC_EVENT_STORED ? Kind.STORED : code == Abi.KVC_EVENT_REMOVED ? Kind.REMOVED : Kind.CLEARED;
    int flags = event.getInt(Abi.Event.FLAGS);
    int[] ids = new int[kind == Kind.STORED ? pageSize : 0];
    for (int i = 0; i < ids.length; i++) {
      ids[i] = tokens.getInt(4 * i);
    }
    return new Event(event.getLong(Abi.Event.NUMBER), kind, event.getInt(Abi.Event.GROUP),
        kind == Kind.CLEARED ? null : key(event, Abi.Event.KEY),
        (flags & Abi.KVC_EVENT_HAS_PARENT) == 0 ? null : key(event, Abi.Event.PARENT), event.getLong(Abi.Event.POSITION), ids,
        event.getLong(Abi.Event.SESSION), (flags & Abi.KVC_EVENT_SALTED) != 0, event.getInt(Abi.Event.TIER));
  }

  private static byte[] key(Mem event, int offset) {
    byte[] key = new byte[PageKeys.BYTES];
    event.buffer.get(event.at + offset, key);
    return key;
  }
}
