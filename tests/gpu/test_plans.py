"""Plans whose arrays are on the device. Its kernels make the same tables as the CPU's plans for the same numbers."""

import numpy as np
import pytest

import kvcache

pytestmark = pytest.mark.only("emulated", "cuda")
ARRAYS = ("cache_seqlens", "cu_seqlens_q", "cu_seqlens_k", "key_starts", "leftpad", "batch_rows", "block_table", "indptr",
          "indices", "last_page_len", "sink_tokens", "hole_tokens", "positions", "last_rows", "slot_mapping")
ROWS, TABLE_ROWS, NODES = 6, 8, 5


def tables_of(plan, host, steps):
    """Every array of every part and step of a plan."""
    found = {}
    for step in range(steps):
        for part in ("whole", "prefix", "branches", "encoder"):
            try:
                tables = plan.tables(step, part=part)
            except kvcache.Error:
                continue
            for name in ARRAYS:
                array = getattr(tables, name)
                if array is not None:
                    found[step, part, name] = np.array(host(array))
    return found


@pytest.mark.parametrize("slots", [False, True])
@pytest.mark.parametrize("mode, settings", [
    ("decode", {}), ("decode", {"window": 9}), ("decode", {"chunk": 7}), ("extend", {}), ("extend", {"chunk": 5}),
    ("extend", {"window": 6}), ("verify", {"num_draft_tokens": NODES}), ("verify", {"num_draft_tokens": NODES, "window": 8}),
    ("draft_decode", {"num_steps": 3, "top_k": 2}), ("draft_decode", {"num_steps": 20, "top_k": 1, "window": 7}),
])  # fmt: skip
def test_the_same_tables_as_on_the_host(device, rng, sampled, mode, settings, slots):
    page, longest = 4, 60
    steps = settings.get("num_steps", 1)
    config = {"page_size": page, "graph": True, "max_rows": ROWS, "max_tokens": 64 if mode == "extend" else 0, "slots": slots, **settings,
              "max_pages_per_row": (longest + 30) if slots else (longest + 30) // page + 1}
    ours = kvcache.Plan(mode, context=device.context(), **config)
    theirs = kvcache.Plan(mode, **config)
    for _ in range(sampled(30)):
        size = int(rng.integers(0, ROWS + 1))
        columns = (longest + 60) // page
        pages = np.stack([rng.permutation(columns * 2)[:columns] for _ in range(TABLE_ROWS)]).astype(np.int32)
        arrays = {"seq_lens": rng.integers(0, longest, size).astype(np.int32),
                  "rows": rng.integers(-1, TABLE_ROWS, size).astype(np.int32)}
        if rng.integers(2):
            arrays["block_table"] = pages
        else:
            arrays["req_to_token"] = (pages[:, :, None] * page + np.arange(page)).reshape(TABLE_ROWS, -1).astype(np.int32)
        if mode == "extend":
            arrays["append_lengths"] = rng.integers(0, 8, size).astype(np.int32)
        if mode == "verify" and rng.integers(2):
            arrays["tree_parents"] = np.array([rng.integers(-1, node) if node else -1 for _ in range(size)
                                               for node in range(NODES)], np.int32)
        on_device = {name: device.array(values, "i32") for name, values in arrays.items()}
        theirs.build(**arrays)
        ours.build(**on_device)
        wanted, got = tables_of(theirs, np.asarray, steps), tables_of(ours, device.host, steps)
        assert wanted and wanted.keys() == got.keys()
        for key, array in wanted.items():
            np.testing.assert_array_equal(got[key], array, err_msg=str(key))
    device.synchronize()
