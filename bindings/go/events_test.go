package kvcache

import (
	"bytes"
	"reflect"
	"testing"
)

func telling(t testing.TB, capacity int64) *Cache {
	return newCache(t, withFingerprint, func(c *Config) { c.EventsCapacity = capacity })
}

func TestEventsSayWhatIsPublishedAndDropped(t *testing.T) {
	cache, tokens := telling(t, 100), tokensFrom(0, 10)
	query := PrefixQuery{Tokens: tokens, Salt: 9, SaltBegin: 4}
	publish(t, cache, query, PrefixOptions{Session: 3})
	keys := must(PageKeys(PageKeysArgs{Tokens: tokens, PageSize: 4, Fingerprint: &[32]byte{7}, Salt: []byte{9, 0, 0, 0, 0, 0, 0, 0},
		SaltBegin: 4}))(t)
	same := func(what string, got []Event, want ...Event) {
		t.Helper()
		if len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v instead of %+v", what, got, want)
		}
	}
	first := Event{Number: 0, Kind: EventStored, Key: keys[0], Tokens: tokens[:4], Session: 3}
	second := Event{Number: 1, Kind: EventStored, Key: keys[1], Parent: &keys[0], Position: 4, Tokens: tokens[4:8], Session: 3, Salted: true}
	found := must(cache.ReadEvents(0, 100))(t)
	if found.Begin != 0 || found.End != 2 || found.Newest != 2 || found.Epoch == 0 {
		t.Errorf("%+v", found)
	}
	same("all", found.Events, first, second)
	same("from the second on", must(cache.ReadEvents(1, 1))(t).Events, second)
	if most := must(cache.ReadEvents(0, 1))(t); most.End != 1 || most.Newest != 2 || len(most.Events) != 1 {
		t.Errorf("%+v", most)
	}

	message := must(cache.EventMessage(0, MessageFormat{}))(t)
	if message.Epoch != found.Epoch || message.End != 2 || message.Count != 2 || !bytes.Contains(message.Payload, keys[1][:]) {
		t.Errorf("%+v", message)
	}
	_, err := cache.EventMessage(0, MessageFormat{MaxBytes: 1})
	refused(t, err, ErrBufferTooSmall, "Cache.ReadEvents")

	must(cache.DropPrefix(PrefixQuery{Tokens: tokens[:8], Salt: 9, SaltBegin: 4}))(t)
	same("dropped", must(cache.ReadEvents(2, 100))(t).Events, Event{Number: 2, Kind: EventRemoved, Key: keys[1]})
	snapshot := must(cache.EventSnapshot())(t)
	if snapshot.Epoch != found.Epoch || snapshot.End != 3 {
		t.Errorf("%+v", snapshot)
	}
	same("snapshot", snapshot.Events, first)
	message = must(cache.EventSnapshotMessage(MessageFormat{}))(t)
	if message.Count != 1 || message.End != 3 || !bytes.Contains(message.Payload, keys[0][:]) {
		t.Errorf("%+v", message)
	}
	check(t, cache.Clear())
	same("cleared", must(cache.ReadEvents(3, 100))(t).Events, Event{Number: 3, Kind: EventCleared, Group: -1})
	same("empty", must(cache.EventSnapshot())(t).Events)
}

func TestAReaderNoticesWhatItMissed(t *testing.T) {
	cache := telling(t, 3)
	publish(t, cache, PrefixQuery{Tokens: tokensFrom(0, 40)}, PrefixOptions{})
	found := must(cache.ReadEvents(0, 100))(t)
	if found.Begin != 7 || found.End != 10 || len(found.Events) != 3 {
		t.Errorf("%+v", found)
	}
	if snapshot := must(cache.EventSnapshot())(t); len(snapshot.Events) != 10 {
		t.Errorf("%d pages", len(snapshot.Events))
	}
	if other := must(telling(t, 3).ReadEvents(0, 1))(t); other.Epoch == found.Epoch {
		t.Error("two caches have one epoch")
	}
	silent := telling(t, 0)
	_, err := silent.ReadEvents(0, 1)
	refused(t, err, ErrUnsupported, "Cache.ReadEvents: ")
	_, err = silent.EventSnapshot()
	refused(t, err, ErrUnsupported, "Cache.EventSnapshot: ")
	_, err = cache.ReadEvents(0, -1)
	refused(t, err, ErrInvalidArgument, "most -1")
}

func TestPagesOfTiersAreTold(t *testing.T) {
	cache := newCache(t, withFingerprint, func(c *Config) { c.EventsCapacity, c.EventsTierPages = 100, 100 })
	check(t, cache.AddHostTier(HostTierOptions{CapacityBytes: 1 << 20, Medium: "Flash"}))
	err := cache.AddHostTier(HostTierOptions{CapacityBytes: 1 << 20, Medium: "Flash"})
	refused(t, err, ErrInvalidArgument, "is taken")
	err = cache.AddDiskTier(t.TempDir(), DiskTierOptions{Medium: "a\x00b"})
	refused(t, err, ErrInvalidArgument, "Cache.AddDiskTier: Medium")
	store(t, cache, tokensFrom(0, 12), PrefixOptions{Session: 3})
	tiers := func(what string, found EventRange, err error, want ...[2]int64) {
		t.Helper()
		check(t, err)
		var got [][2]int64
		for _, event := range found.Events {
			got = append(got, [2]int64{int64(event.Tier), event.Position})
			if event.Kind == EventStored && event.Session != 3 {
				t.Errorf("%+v", event)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v instead of %v", what, got, want)
		}
	}
	all := [][2]int64{{0, 0}, {0, 4}, {0, 8}, {1, 0}, {1, 4}, {1, 8}}
	found, err := cache.ReadEvents(0, 100)
	tiers("all", found, err, all...)
	found, err = cache.EventSnapshot()
	tiers("snapshot", found, err, all...)
	if message := must(cache.EventMessage(0, MessageFormat{}))(t); !bytes.Contains(message.Payload, []byte("\xa5Flash")) {
		t.Error("no medium")
	}
	check(t, cache.Clear())
	found, err = cache.ReadEvents(6, 100)
	tiers("cleared", found, err, [2]int64{0, 0}, [2]int64{0, 0}, [2]int64{0, 0})
	found, err = cache.EventSnapshot()
	tiers("what is left", found, err, all[3:]...)
}
