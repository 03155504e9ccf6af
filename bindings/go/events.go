package kvcache

import "unsafe"

// EventKind says what an event tells.
type EventKind int32

const (
	EventStored  EventKind = kvcEventStored  // the page with this key can be found in this group
	EventRemoved EventKind = kvcEventRemoved // it cannot any more: it was evicted or dropped
	EventCleared EventKind = kvcEventCleared // no page can be found in any group or tier
)

// Event is a whole page that became findable or stopped being so, or all of them did.
type Event struct {
	Number uint64 // in the epoch, from 0; in a snapshot 0
	Kind   EventKind
	Group  int     // -1 = all
	Tier   int     // where the page is: 0 = in the pools; i = in the tier that was added i-th, counted from 1
	Key    PageKey // zero if all pages are cleared
	// Of stored pages:
	Parent   *PageKey // key of the page before it; nil for the first page of a sequence
	Position int64    // of its first token in its sequence
	Tokens   []int32
	Session  uint64 // that alone published it; 0 = none, or several
	Salted   bool   // its salt is not 0
}

// EventRange is events that follow each other, or the pages of a snapshot.
type EventRange struct {
	Epoch  uint64 // of the cache: random, never 0
	Begin  uint64 // number of the first event. Above what was wanted: the ones between are lost, and a snapshot is needed
	End    uint64 // number of the event after the last one: the next to read
	Newest uint64 // number that the next event will get
	Events []Event
}

// MessageFormat says how a message of events is written. Zero is the default everywhere.
type MessageFormat struct {
	Timestamp        float64 // in seconds
	DataParallelRank *int    // nil = none
	Arrays           bool    // events as arrays, as older consumers read them; else as maps
	ShortHashes      bool    // keys as integers of 64 bits; else as 32 bytes
	MaxBytes         int     // of a message that EventMessage writes; 0 = 1 MiB
}

// EventMessage is one message in the form that vLLM's consumers read, with the numbers of its events as in EventRange.
type EventMessage struct {
	Epoch, Begin, End, Newest uint64
	Count                     int64  // events, or pages of a snapshot
	Payload                   []byte // MessagePack; empty if there is no event
}

// ReadEvents gives the events from number next on, at most so many. This and all other methods on events need
// Config.EventsCapacity.
func (c *Cache) ReadEvents(next uint64, most int) (EventRange, error) {
	if most < 0 {
		return EventRange{}, misuse(ErrInvalidArgument, "Cache.ReadEvents: most %d is negative", most)
	}
	there, err := c.events("Cache.ReadEvents", (*library).eventsRead, next, 0)
	if err != nil {
		return EventRange{}, err
	}
	most = int(min(uint64(most), there.Newest-there.Begin))
	return c.events("Cache.ReadEvents", (*library).eventsRead, next, most)
}

// EventSnapshot gives an EventStored for each page that the index holds, parents first, and then for those of tiers. Read on
// from its End.
func (c *Cache) EventSnapshot() (found EventRange, err error) {
	err = c.grown("Cache.EventSnapshot", func(pages, _ int) error {
		found, err = c.events("Cache.EventSnapshot", (*library).eventsSnapshot, 0, pages)
		return err
	})
	return found, err
}

// EventMessage writes one message with the events from number next on: at most 4096, and as many as fit.
func (c *Cache) EventMessage(next uint64, format MessageFormat) (EventMessage, error) {
	if format.MaxBytes < 0 {
		return EventMessage{}, misuse(ErrInvalidArgument, "Cache.EventMessage: MaxBytes %d is negative", format.MaxBytes)
	}
	size := format.MaxBytes
	if size == 0 {
		size = 1 << 20
	}
	return c.message("Cache.EventMessage", (*library).eventsRead, next, format, size)
}

// EventSnapshotMessage writes one message that clears all blocks, and then stores each page of EventSnapshot.
func (c *Cache) EventSnapshotMessage(format MessageFormat) (message EventMessage, err error) {
	err = c.grown("Cache.EventSnapshotMessage", func(_, bytes int) error {
		message, err = c.message("Cache.EventSnapshotMessage", (*library).eventsSnapshot, 0, format, bytes)
		return err
	})
	return message, err
}

type eventsCall func(*library, *arena, uintptr, *kvcEventsArgs, *kvcEventsRange) Status

// grown calls with the pages and bytes of a snapshot until they are enough: the index may grow meanwhile.
func (c *Cache) grown(function string, call func(pages, bytes int) error) error {
	for {
		found, err := c.fill(function, (*library).eventsSnapshot, func(*arena, *kvcEventsArgs) {})
		if err != nil {
			return err
		}
		more := func(size int64) int { return int(size + size/8 + 16) }
		err = call(more(found.count), more(found.numBytes))
		if e, ok := err.(*Error); !ok || e.Status != ErrBufferTooSmall {
			return err
		}
	}
}

// fill makes a call with arguments in memory that C may see.
func (c *Cache) fill(function string, call eventsCall, set func(*arena, *kvcEventsArgs)) (kvcEventsRange, error) {
	a, h, err := c.enter(function)
	if err != nil {
		return kvcEventsRange{}, err
	}
	defer leave(a, h)
	a.events.init()
	defer a.events.init() // it points to the caller's memory
	a.eventsRange.init()
	set(a, &a.events)
	err = a.check(call(h.lib, a, h.address, &a.events, &a.eventsRange))
	return a.eventsRange, err
}

func (c *Cache) events(function string, call eventsCall, next uint64, most int) (EventRange, error) {
	var events []kvcEvent
	var tokens []int32
	r, err := c.fill(function, call, func(a *arena, args *kvcEventsArgs) { // the Cache is not nil here
		events, tokens = make([]kvcEvent, most), make([]int32, most*c.pageSize)
		args.next, args.capacity, args.eventSize = next, int64(most), uint32(unsafe.Sizeof(kvcEvent{}))
		args.events, args.tokens = address(a, events), address(a, tokens)
	})
	if err != nil {
		return EventRange{}, err
	}
	found := EventRange{Epoch: r.epoch, Begin: r.begin, End: r.end, Newest: r.newest}
	for i := range events[:min(r.count, int64(most))] {
		e := &events[i]
		event := Event{Number: e.number, Kind: EventKind(e.kind), Group: int(e.group), Tier: int(e.tier), Key: e.key}
		if event.Kind == EventStored {
			event.Position, event.Session, event.Salted = e.position, e.session, e.flags&kvcEventSalted != 0
			event.Tokens = tokens[i*c.pageSize : (i+1)*c.pageSize : (i+1)*c.pageSize]
			if e.flags&kvcEventHasParent != 0 {
				event.Parent = (*PageKey)(&e.parent)
			}
		}
		found.Events = append(found.Events, event)
	}
	return found, nil
}

func (c *Cache) message(function string, call eventsCall, next uint64, format MessageFormat, size int) (EventMessage, error) {
	bytes := make([]byte, size)
	r, err := c.fill(function, call, func(a *arena, args *kvcEventsArgs) {
		args.next, args.timestamp, args.dataParallelRank = next, format.Timestamp, -1
		if format.DataParallelRank != nil {
			args.dataParallelRank = narrow(*format.DataParallelRank)
		}
		args.flags = flag(format.Arrays, kvcEventsArrays) | flag(format.ShortHashes, kvcEventsShortHashes)
		args.bytes, args.capacityBytes = address(a, bytes), int64(len(bytes))
	})
	if err != nil {
		return EventMessage{}, err
	}
	return EventMessage{Epoch: r.epoch, Begin: r.begin, End: r.end, Newest: r.newest, Count: r.count,
		Payload: bytes[:r.numBytes:r.numBytes]}, nil
}
