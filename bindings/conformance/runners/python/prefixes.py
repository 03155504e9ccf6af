"""Operations of the prefix index and its events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kvcache import PrefixHit
from script import Script, operation


def query(s: Script, **more: bool) -> dict[str, Any]:
    return {"salt": s.integer("salt"), "salt_begin": s.integer("salt_begin"),
            "adapter": bytes.fromhex(s.words.get("adapter", "")), "media": s.media(), **more}  # fmt: skip


def prompt(s: Script) -> list[int]:
    return s.integers("prompt") or []


def hit_results(hit: PrefixHit) -> dict[str, str]:
    limited_by = -1 if hit.limited_by is None else hit.limited_by
    return {"tokens": str(hit.tokens), "copied": str(hit.copied_tokens), "known": str(hit.known_tokens),
            "limited_by": str(limited_by)}  # fmt: skip


@operation
def match_prefix(s: Script) -> dict[str, str]:
    return hit_results(s.cache.match_prefix(prompt(s), **query(s, allow_all=s.has("allow_all"))))


@operation
def attach_prefix(s: Script) -> dict[str, str]:
    sequence, hit = s.cache.attach_prefix(prompt(s), **query(s, allow_all=s.has("allow_all")))
    s.bind([sequence])
    return hit_results(hit)


@operation
def publish_prefix(s: Script) -> dict[str, str]:
    published = s.cache.publish_prefix(s.sequence(), prompt(s), **query(s), session=s.integer("session"),
                                       priority=s.integer("priority"), time_to_live=s.integer("time_to_live"),
                                       keep_private=s.has("keep_private"))  # fmt: skip
    return {"known": str(published.known_tokens), "added": str(published.pages_added),
            "freed": str(published.pages_freed)}  # fmt: skip


@operation
def drop_prefix(s: Script) -> dict[str, str]:
    return {"pages": str(s.cache.drop_prefix(prompt(s), **query(s)))}


@operation
def drop_session(s: Script) -> dict[str, str]:
    return {"pages": str(s.cache.drop_session(s.integer("session")))}


@operation
def set_prefix_priority(s: Script) -> None:
    priority, time_to_live = s.integer("priority"), s.integer("time_to_live")
    if s.has("session"):
        s.cache.set_session_priority(s.integer("session"), priority, time_to_live)
    else:
        s.cache.set_prefix_priority(prompt(s), priority, time_to_live, **query(s))


@operation
def pin_prefix(s: Script) -> dict[str, str]:
    pin, hit = s.cache.pin_prefix(prompt(s), **query(s))
    return {"tokens": str(hit.tokens), "pin": str(pin)}


@operation
def unpin_prefix(s: Script) -> None:
    s.cache.unpin_prefix(s.integer("pin"))


@operation
def set_time(s: Script) -> None:
    s.cache.set_time(s.integer("now"))


def numbers(values: Iterable[int]) -> str:
    return ",".join(str(int(value)) for value in values)


@operation
def events(s: Script) -> dict[str, str]:
    events = s.cache.events
    found = events.snapshot() if s.has("snapshot") else events.read(s.integer("next"), s.integer("most", 256))
    all_events = found.events
    return {
        "begin": str(found.begin), "end": str(found.end), "newest": str(found.newest),
        "kinds": numbers(("stored", "removed", "cleared").index(event.kind) + 1 for event in all_events),
        "groups": numbers(event.group for event in all_events),
        "tiers": numbers(event.tier for event in all_events),
        "keys": b"".join(event.key or bytes(32) for event in all_events).hex(),
        "parents": b"".join(event.parent or bytes(32) for event in all_events).hex(),
        "positions": numbers(event.position for event in all_events),
        "sessions": numbers(event.session for event in all_events),
        "salted": numbers(event.salted for event in all_events),
        "tokens": numbers(token for event in all_events for token in event.tokens),
    }  # fmt: skip


@operation
def event_message(s: Script) -> dict[str, str]:
    form = {"timestamp": float(s.words.get("timestamp", 0)), "arrays": s.has("arrays"), "short_hashes": s.has("short_hashes"),
            "data_parallel_rank": s.integer("rank") if s.has("rank") else None}  # fmt: skip
    if s.has("snapshot"):
        message = s.cache.events.snapshot_message(**form)
    else:
        message = s.cache.events.read_message(s.integer("next"), most_bytes=s.integer("max_bytes", 1 << 20), **form)
    return {"begin": str(message.begin), "end": str(message.end), "newest": str(message.newest), "count": str(message.count),
            "payload": message.payload.hex()}  # fmt: skip
