"""Tiers: memory, and folders in those that the driver names."""

from __future__ import annotations

import math
import time

from prefixes import hit_results, prompt, query
from saves import path_in
from script import Script, operation


@operation
def add_tier(s: Script) -> None:
    if s.has("host"):
        s.cache.add_host_tier(s.integer("capacity_bytes"), store=s.words.get("store", "published"),
                              min_tokens=s.integer("min_tokens"), medium=s.words.get("medium"),
                              pinned=s.has("pinned"))  # fmt: skip
        return
    variable = "KVCACHE_CONFORMANCE_LOAD" if s.has("of_first") else "KVCACHE_CONFORMANCE_SAVE"
    s.cache.add_disk_tier(path_in(variable, s, "directory"), capacity_bytes=s.integer("capacity_bytes"),
                          sync=s.words.get("sync", "data"), store=s.words.get("store", "published"),
                          min_tokens=s.integer("min_tokens"), medium=s.words.get("medium"),
                          reads=s.words.get("reads", "any"))  # fmt: skip


@operation
def load_prefix(s: Script) -> dict[str, str]:
    job, hit = s.cache.load_prefix(prompt(s), **query(s, allow_all=s.has("allow_all")), session=s.integer("session"),
                                   priority=s.integer("priority"), time_to_live=s.integer("time_to_live"),
                                   token_ns=s.integer("token_ns", 2**63 - 1))  # fmt: skip
    if job is not None and s.has("cancel"):
        job.cancel()
    loaded = 0 if job is None else job.wait()
    if s.has("cancel"):
        return {}
    tiers = list(hit.tier_tokens)
    while tiers and tiers[-1] == 0:
        del tiers[-1]
    return {**hit_results(hit), "load_tokens": str(hit.load_tokens), "tier_tokens": ",".join(map(str, tiers)),
            "loaded": str(loaded)}  # fmt: skip


@operation
def attach_pending(s: Script) -> dict[str, str]:
    s.job, _ = s.cache.load_prefix(prompt(s), **query(s, allow_all=s.has("allow_all")), token_ns=math.inf)
    assert s.job is not None
    sequence, tokens = s.job.attach(wait=True)
    s.bind([sequence])
    return {"tokens": str(tokens)}


@operation
def wait_job(s: Script) -> dict[str, str]:
    assert s.job is not None
    return {"loaded": str(s.job.wait()), "pending": str(int(s.cache.pending(s.sequence()) is not None))}


@operation
def suspend(s: Script) -> dict[str, str]:
    return {"tokens": str(s.cache.suspend(s.sequence()).wait())}


@operation
def resume(s: Script) -> dict[str, str]:
    return {"tokens": str(s.cache.resume(s.sequence()).wait())}


@operation
def tier_traffic(s: Script) -> dict[str, str]:
    while (traffic := s.cache.tier_traffic()).pages_waiting > 0:
        time.sleep(0.001)
    return {"num_tiers": str(traffic.num_tiers), "stored": str(traffic.pages_stored), "dropped": str(traffic.pages_dropped),
            "not_stored": str(traffic.pages_not_stored), "loading": str(traffic.pages_loading),
            "loaded": str(traffic.pages_loaded), "not_loaded": str(traffic.pages_not_loaded),
            "suspended": str(traffic.sequences_suspended)}  # fmt: skip
