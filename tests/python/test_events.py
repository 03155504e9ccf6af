"""Events of the prefix index: records, messages, and the publisher over loopback."""

import time
from contextlib import contextmanager

import kvcache
import msgspec
import numpy as np
import pytest
import zmq

PAGE = 4
MODEL = bytes(range(32))


def make(capacity=1000, **more):
    layers = [kvcache.Layer(group=0, head_dim=8), kvcache.Layer(group=1, head_dim=8)]
    return kvcache.Cache(layers, [kvcache.Full(), kvcache.Sliding(100)], page_size=PAGE, capacity_tokens=256, storage=None,
                         prefix_index=True, fingerprint=MODEL, events_capacity=capacity, **more)  # fmt: skip


@pytest.fixture
def cache():
    with make() as made:
        yield made


def remember(cache, tokens, **more):
    sequence, hit = cache.attach_prefix(tokens, **{k: v for k, v in more.items() if k != "session"})
    with cache.forward([sequence], [len(tokens) - hit.tokens]):
        pass
    cache.publish_prefix(sequence, tokens, **more)
    cache.remove(sequence)
    cache.take_copies()


class BlockStored(msgspec.Struct, tag=True):
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None
    ownership: str | None = None
    session_id: str | None = None


class BlockRemoved(msgspec.Struct, tag=True):
    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None
    ownership: str | None = None


class AllBlocksCleared(msgspec.Struct, tag=True):
    pass


class Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]
    data_parallel_rank: int | None = None


def decode(payload):
    return msgspec.msgpack.decode(payload, type=Batch)


class Index:
    """A router's record of one engine: the tokens of each page, by group and key."""

    def __init__(self):
        self.pages = {}

    def apply(self, payload):
        for event in decode(payload).events:
            if isinstance(event, AllBlocksCleared):
                self.pages.clear()
            elif isinstance(event, BlockRemoved):
                for key in event.block_hashes:
                    self.pages.pop((event.group_idx, key), None)
            else:
                for i, key in enumerate(event.block_hashes):
                    tokens = event.token_ids[i * event.block_size : (i + 1) * event.block_size]
                    self.pages[event.group_idx, key] = tokens


def held(cache):
    index = Index()
    index.apply(cache.events.snapshot_message(timestamp=0).payload)
    return index.pages


def test_records_say_what_is_published_and_dropped(cache):
    tokens = list(range(10))
    remember(cache, tokens, salt=9, salt_begin=4, session=3)
    found = cache.events.read(0)
    assert (found.begin, found.end, found.newest) == (0, 4, 4)
    keys = kvcache.page_keys(tokens, PAGE, MODEL, salt=(9).to_bytes(8, "little"), salt_begin=4)
    assert found.events[0] == kvcache.Event(0, "stored", 0, keys[0], None, 0, [0, 1, 2, 3], 3, False)
    assert found.events[3] == kvcache.Event(3, "stored", 1, keys[1], keys[0], 4, [4, 5, 6, 7], 3, True)
    cache.drop_prefix(tokens[:8], salt=9, salt_begin=4)
    assert [(e.kind, e.key, e.group) for e in cache.events.read(4).events] == [("removed", keys[1], g) for g in (0, 1)]
    assert [(e.key, e.group) for e in cache.events.snapshot().events] == [(keys[0], 0), (keys[0], 1)]
    cache.clear()
    assert [e.kind for e in cache.events.read(6).events] == ["cleared"]
    assert cache.events.snapshot().events == []


def test_messages_name_adapters_and_media(cache):
    tokens, image = list(range(12)), bytes(range(32))
    where = {"adapter": "mod\u00e8le".encode(), "media": [(2, 4, image)]}
    remember(cache, tokens, salt=9, salt_begin=8, **where)
    message = msgspec.msgpack.decode(cache.events.read_message(0, timestamp=0).payload)
    name = "mod\u00e8le"
    extra = [[name, [image.hex(), 2]], [name, [image.hex(), -2]], [name, "salted"]]
    stored = [event for event in message[1] if event["group_idx"] == 0]
    assert [key for event in stored for key in event["extra_keys"]] == extra
    assert {event["lora_name"] for event in stored} == {name}
    keys = kvcache.page_keys(tokens, PAGE, MODEL, salt=(9).to_bytes(8, "little"), salt_begin=8, **where)
    assert [key for event in stored for key in event["block_hashes"]] == keys
    snapshot = msgspec.msgpack.decode(cache.events.snapshot_message(timestamp=0).payload)
    assert [key for event in snapshot[1] if event.get("group_idx") == 0 for key in event["extra_keys"]] == extra
    batch = msgspec.msgpack.decode(cache.events.read_message(0, timestamp=0).payload, type=Batch)
    assert batch.events[0].lora_name == name


def test_a_reader_notices_what_it_missed():
    with make(capacity=3) as cache:
        remember(cache, list(range(40)))
        found = cache.events.read(0)
        assert (found.begin, found.end) == (17, 20)
        assert cache.events.epoch != make().events.epoch


def test_messages_have_every_field(cache):
    tokens = list(range(12))
    remember(cache, tokens, salt=9, salt_begin=4, session=3)
    keys = kvcache.page_keys(tokens, PAGE, MODEL, salt=(9).to_bytes(8, "little"), salt_begin=4)
    batch = decode(cache.events.read_message(0, timestamp=2.5, data_parallel_rank=7).payload)
    assert (batch.ts, batch.data_parallel_rank) == (2.5, 7)
    plain = BlockStored(keys[:1], None, tokens[:4], PAGE, None, "CPU", None, None, 0, "full_attention", None, "LOCAL", None, "3")
    assert batch.events[0] == plain
    salted = BlockStored(keys[1:], keys[0], tokens[4:], PAGE, None, "CPU", None, [("salted",)] * 2, 1, "sliding_window", 100,
                         "LOCAL", None, "3")  # fmt: skip
    assert batch.events[3] == salted
    cache.drop_prefix(tokens[:4])
    removed = decode(cache.events.read_message(6, timestamp=2.5).payload).events
    assert removed == [BlockRemoved(keys[::-1], "CPU", group, "LOCAL") for group in (0, 1)]


def test_arrays_and_short_hashes(cache):
    remember(cache, list(range(8)))
    key = kvcache.page_keys(list(range(8)), PAGE, MODEL)
    short = [int.from_bytes(k[-8:], "big") for k in key]
    payload = cache.events.read_message(0, timestamp=1, arrays=True, short_hashes=True).payload
    _, events, rank = msgspec.msgpack.decode(payload)
    assert rank is None
    assert events[0] == ["BlockStored", short, None, list(range(8)), PAGE, None, "CPU", None, None, 0, "full_attention", None,
                         "LOCAL"]  # fmt: skip
    cache.clear()
    assert msgspec.msgpack.decode(cache.events.read_message(4, timestamp=1, arrays=True).payload)[1] == [["AllBlocksCleared"]]


def test_small_messages_have_all_events_in_order(cache):
    for i in range(10):
        remember(cache, [*range(8), *range(100 * i, 100 * i + 12)], salt=i % 3)
        if i == 6:
            cache.drop_prefix(range(8), salt=1)
    whole, parts, number = Index(), Index(), 0
    whole.apply(cache.events.read_message(0, timestamp=0).payload)
    while (message := cache.events.read_message(number, timestamp=0, most_bytes=700)).count:
        assert len(message.payload) <= 700
        parts.apply(message.payload)
        number = message.end
    assert whole.pages == parts.pages == held(cache)
    with pytest.raises(kvcache.BufferTooSmall):
        cache.events.read_message(0, timestamp=0, most_bytes=100)


def store(cache, tokens, session=0):
    """Computes and publishes tokens, and waits until the tiers have them."""
    sequence = cache.add()
    with cache.forward([sequence], [len(tokens)]) as step:
        step.attend(0, *[np.ones((len(tokens), 1, 8), np.float32)] * 3)
    cache.publish_prefix(sequence, tokens, session=session)
    cache.remove(sequence)
    while cache.tier_traffic().pages_waiting > 0:
        time.sleep(0.001)


def tiered(tmp_path, tier_pages=100):
    layers = [kvcache.Layer(q_heads=1, kv_heads=1, head_dim=8)]
    cache = kvcache.Cache(layers, page_size=PAGE, capacity_tokens=256, prefix_index=True, fingerprint=MODEL,
                          events_capacity=1000, events_tier_pages=tier_pages)  # fmt: skip
    cache.add_host_tier(2 * 4096)
    cache.add_disk_tier(tmp_path / "tier", medium="DISK")
    return cache


class Places(Index):
    """The same with tiers: a page is in a medium."""

    def apply(self, payload):
        for event in decode(payload).events:
            if isinstance(event, AllBlocksCleared):
                self.pages.clear()
            elif isinstance(event, BlockRemoved):
                for key in event.block_hashes:
                    del self.pages[event.medium, key]
            else:
                for i, key in enumerate(event.block_hashes):
                    assert (event.medium, key) not in self.pages
                    self.pages[event.medium, key] = event.token_ids[i * PAGE : (i + 1) * PAGE]


def test_pages_of_tiers_are_told(tmp_path):
    tokens, keys = list(range(12)), kvcache.page_keys(list(range(12)), PAGE, MODEL)
    with tiered(tmp_path) as cache:
        store(cache, tokens, session=3)
        events = cache.events.read(0).events
        # The host tier has room for two pages, so the first one has left it. A disk ends stores in any order.
        kept = [(event.kind, event.key) for event in events if event.tier == 1]
        assert {key for kind, key in kept if kind == "stored"} - {key for kind, key in kept if kind == "removed"} == set(keys[1:])
        disk = sorted((e.position, e.key, e.parent, e.session) for e in events if e.tier == 2)
        assert disk == [(0, keys[0], None, 3), (4, keys[1], keys[0], 3), (8, keys[2], keys[1], 3)]
        places = Places()
        message = cache.events.read_message(0, timestamp=1.0)
        places.apply(message.payload)
        assert {medium for medium, _ in places.pages} == {"CPU", "HOST", "DISK"}
        cache.clear()
        later = cache.events.read_message(message.end, timestamp=1.0)
        assert not any(isinstance(event, AllBlocksCleared) for event in decode(later.payload).events)
        places.apply(later.payload)
        assert set(places.pages) == {("HOST", keys[1]), ("HOST", keys[2]), *(("DISK", key) for key in keys)}
        whole = Places()
        whole.apply(cache.events.snapshot_message(timestamp=0).payload)
        assert whole.pages == places.pages
    with tiered(tmp_path) as cache:  # an earlier process has filled the folder
        assert cache.events.snapshot().events == []
        cache.match_prefix(tokens)
        assert [(e.tier, e.key, e.tokens) for e in cache.events.snapshot().events] == [
            (2, keys[i], tokens[4 * i : 4 * i + 4]) for i in range(3)]  # fmt: skip
    with tiered(tmp_path, tier_pages=0) as cache:
        cache.match_prefix(tokens)
        assert cache.events.read(0).events == []
        with pytest.raises(kvcache.InvalidArgument, match='medium "DISK" is taken'):
            cache.add_disk_tier(tmp_path / "other", medium="DISK")


def test_a_cache_without_events_says_so():
    with kvcache.Cache([kvcache.Layer(head_dim=8)], capacity_tokens=64, prefix_index=True) as plain:
        with pytest.raises(kvcache.Unsupported, match="events_capacity"):
            plain.events.read(0)
        with pytest.raises(kvcache.Unsupported):
            kvcache.EventPublisher(plain, "inproc://none")
    with pytest.raises(kvcache.InvalidArgument, match="fingerprint must be 32 bytes"):
        make_with = dict(prefix_index=True, events_capacity=4, fingerprint=b"short")
        kvcache.Cache([kvcache.Layer(head_dim=8)], capacity_tokens=64, **make_with)


@contextmanager
def subscriber(publisher, topic=b""):
    context = zmq.Context.instance()
    with context.socket(zmq.SUB) as sub:
        sub.setsockopt(zmq.SUBSCRIBE, topic)
        sub.rcvtimeo = 10_000
        sub.connect(publisher.endpoint)
        time.sleep(0.3)  # time for the subscription to arrive
        yield sub


def ask(publisher, request):
    with zmq.Context.instance().socket(zmq.DEALER) as dealer:
        dealer.rcvtimeo = 10_000
        dealer.connect(publisher.replay_endpoint)
        dealer.send_multipart([b"", request])
        answers = [dealer.recv_multipart()]
        while len(request) == 8 and int.from_bytes(answers[-1][2], "big", signed=True) != -1:
            answers.append(dealer.recv_multipart())
        return answers


@pytest.fixture
def publisher(cache):
    with kvcache.EventPublisher(cache, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*", topic="kv@engine", interval=0.002) as made:
        yield made


def receive(sub, index, cache, last=None):
    """Applies messages until the index equals that of the cache. Returns the numbers of the messages."""
    numbers = []
    while True:
        topic, number, payload = sub.recv_multipart()
        assert topic == b"kv@engine"
        numbers.append(int.from_bytes(number, "big"))
        index.apply(payload)
        if index.pages == held(cache):
            return numbers


def test_a_subscriber_follows_the_index(cache, publisher):
    index = Index()
    with subscriber(publisher, b"kv@") as sub:
        numbers = []
        for i in range(5):
            remember(cache, [*range(8), *range(100 * i, 100 * i + 8)], salt=i % 2)
            numbers += receive(sub, index, cache)
        cache.drop_prefix([], salt=1)
        numbers += receive(sub, index, cache)
        cache.clear()
        numbers += receive(sub, index, cache)
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert index.pages == {}


def test_a_late_consumer_takes_a_snapshot_and_follows(cache, publisher):
    remember(cache, list(range(16)))
    with subscriber(publisher) as sub:
        [(empty, topic, number, payload, epoch)] = ask(publisher, b"kvcache.snapshot")
        assert (empty, topic) == (b"", b"kv@engine")
        assert int.from_bytes(epoch, "big") == cache.events.epoch
        index = Index()
        index.apply(payload)
        assert index.pages == held(cache)
        remember(cache, list(range(16, 32)))
        # The subscriber may have seen messages before the snapshot, too.
        assert int.from_bytes(number, "big") in receive(sub, index, cache)


def test_messages_are_replayed(cache, publisher):
    with subscriber(publisher) as sub:
        index, numbers = Index(), []
        for i in range(4):
            remember(cache, list(range(100 * i, 100 * i + 8)))
            numbers += receive(sub, index, cache)
    answers = ask(publisher, numbers[1].to_bytes(8, "big"))
    assert [int.from_bytes(number, "big") for _, _, number, _ in answers[:-1]] == numbers[1:]
    assert answers[-1] == [b"", b"", b"\xff" * 8, b""]
    replayed = Index()
    for _, topic, _, payload in answers[:-1]:
        assert topic == b"kv@engine"
        replayed.apply(payload)
    assert len(replayed.pages) == len(index.pages) - 4  # all but those of the first message
    assert ask(publisher, b"what?") == [[b"", b"", b"\xff" * 8, b""]]
    [(_, _, number, payload, epoch)] = ask(publisher, b"kvcache.epoch")
    assert (int.from_bytes(number, "big"), payload) == (numbers[-1] + 1, b"")
    assert int.from_bytes(epoch, "big") == cache.events.epoch


def test_a_gap_is_seen_and_mended():
    with make(capacity=4) as cache:
        now = 5.0
        publisher = kvcache.EventPublisher(cache, "tcp://127.0.0.1:*", interval=0.5, topic="kv@engine", clock=lambda: now)
        with publisher, subscriber(publisher) as sub:
            index = Index()
            remember(cache, list(range(4)))
            first = receive(sub, index, cache)
            assert first == [int(now * 1000) << 16]
            remember(cache, list(range(100, 140)))  # more events than the ring can hold
            assert receive(sub, index, cache) == [first[0] + 2]


def test_numbers_of_a_later_publisher_are_higher(cache):
    remember(cache, list(range(4)))
    with kvcache.EventPublisher(cache, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*") as first:
        [(_, _, before, _, _)] = ask(first, b"kvcache.epoch")
    time.sleep(0.002)
    with kvcache.EventPublisher(cache, "tcp://127.0.0.1:*", "tcp://127.0.0.1:*") as second:
        [(_, _, after, _, _)] = ask(second, b"kvcache.epoch")
    assert after > before


@pytest.mark.parametrize("replay", [None, "tcp://127.0.0.1:*"])
def test_close_sends_what_is_left(cache, replay):
    publisher = kvcache.EventPublisher(cache, "tcp://127.0.0.1:*", replay, interval=60, topic="kv@engine")
    with subscriber(publisher) as sub:
        remember(cache, list(range(8)))
        begin = time.monotonic()
        publisher.close()
        assert time.monotonic() - begin < 30, "close waits for the interval"
        index = Index()
        receive(sub, index, cache)


def test_a_closed_cache_ends_its_publisher():
    with make() as cache:
        publisher = kvcache.EventPublisher(cache, "tcp://127.0.0.1:*", interval=0.001)
    publisher.close()


def test_an_endpoint_that_is_taken_is_an_error(cache, publisher):
    with pytest.raises(zmq.ZMQError):
        kvcache.EventPublisher(cache, publisher.endpoint)
