"""What speed.py measures: each work as (name, case, function that gives its row)."""

import contextlib
import random
import statistics
import time

import torch

import kvcache

KV_TYPES = {"bf16": (torch.bfloat16, 2), "f16": (torch.float16, 2), "f32": (torch.float32, 4),
            "float8_e4m3fn": (torch.bfloat16, 1), "int8": (torch.bfloat16, 1), "uint4": (torch.bfloat16, 0.5),
            "float4_e2m1fn": (torch.bfloat16, 0.5625)}  # the type of q, and the bytes of a stored element


class Bench:
    """A cache that holds `rows` sequences of `tokens` tokens of random K and V in every layer, and attention over the first.
    Pages of a sequence do not follow each other, as in a server."""

    def __init__(self, clock, *, rows, tokens, q_heads, kv_heads, dim, dtype="bf16", page=16, room=64, latent=0, shared=0,
                 layers=1, simd=None, row_format=None, **options):
        self.clock, self.rows, self.tokens, self.layers = clock, rows, tokens, layers
        self.q_heads, self.kv_heads, self.dim, self.latent = q_heads, kv_heads, dim, latent
        self.element, self.kv_bytes = KV_TYPES[dtype]
        scales = {"k_scales": 0.03, "v_scales": 0.03} if dtype.startswith("float") else {}
        if row_format is None:
            scales["dtype"] = dtype
        layer = kvcache.Layer(q_heads=q_heads, kv_heads=kv_heads, head_dim=dim, latent_dim=latent, scale=dim**-0.5,
                              row_format=row_format, **scales)
        self.context = kvcache.Context("cuda:0", simd=simd) if clock.on_card else kvcache.Context("cpu")
        each = -(-(tokens + room) // page) * page
        # A shared prefix is stored once.
        capacity = rows * (each - shared // page * page) + 2 * shared + 4 * page
        self.cache = kvcache.Cache([layer] * layers, [kvcache.Full(row="latent")] if latent else None, page_size=page, capacity_tokens=capacity,
                                   max_sequences=2 * rows + 1, max_batch_tokens=max(16384, rows * room), context=self.context,
                                   **options)
        if shared:
            prompt = self.cache.add()
            self._fill(prompt, shared)
            self.ids = self.cache.fork([prompt] * rows)
            self.cache.remove(prompt)
        else:
            self.ids = self.cache.add(rows)
        self._fill_in_turns(tokens - shared, max(page, 16))

    def close(self):
        self.clock.synchronize()
        self.cache.close()

    def random(self, tokens, heads, dim):
        return torch.randn(tokens, heads, dim, device=self.clock.device).to(self.element)

    def kv(self, tokens):
        k = self.random(tokens, self.kv_heads, self.dim)
        return (k, None) if self.latent else (k, self.random(tokens, self.kv_heads, self.dim))

    def _fill_in_turns(self, tokens, each):
        """Fills all sequences, `each` tokens at a time in a random order, as a server would: pages of a sequence are apart."""
        k, v = self.kv(min(tokens, each) * self.rows)
        while tokens > 0:
            count = min(tokens, each)
            order = random.sample(self.ids, len(self.ids))
            with self.cache.forward(order, [count] * self.rows) as step:
                for layer in range(self.layers):
                    step.append(layer, k[: count * self.rows], None if v is None else v[: count * self.rows])
            tokens -= count

    def _fill(self, sequence, tokens):
        while tokens > 0:
            count = min(tokens, 16384)
            with self.cache.forward(sequence, count) as step:
                for layer in range(self.layers):
                    step.append(layer, *self.kv(count))
            tokens -= count

    def attend_seconds(self, new=1, **options):
        """Time of attention of `new` tokens of each sequence over all that is stored, without their append. options: of the
        attend."""
        total = self.rows * new
        q, (k, v) = self.random(total, self.q_heads, self.dim), self.kv(total)
        out = self.random(total, self.q_heads, self.latent or self.dim)
        steps = []

        def prepare():
            steps.append(self.cache.forward(self.ids, [new] * self.rows))
            steps[-1].append(0, k, v)

        return self.clock.seconds(lambda: steps[-1].attend(0, q, out=out, **options), prepare, lambda: steps.pop().abort())

    def append_seconds(self, new, layers=1):
        """Time of one append, measured over `layers` layers in a row, because one alone may be too short for events."""
        total = self.rows * new
        k, v = self.kv(total)
        steps = []

        def call():
            for layer in range(layers):
                steps[-1].append(layer, k, v)

        return self.clock.seconds(call, lambda: steps.append(self.cache.forward(self.ids, [new] * self.rows)),
                                  lambda: steps.pop().abort()) / layers


def row(seconds, *, bytes_=None, operations=None, machine, target=None, torch_seconds=None):
    """The row of a work that moves bytes or computes, beside the limit of the GPU. `target` is a share of the limit."""
    result = {"us": seconds * 1e6, "target": "" if target is None else f">= {100 * target:.0f} %"}
    if bytes_ is not None:
        result.update(rate=f"{bytes_ / seconds / 1e12:.3f} TB/s", share=bytes_ / seconds / machine.copy)
    else:
        result.update(rate=f"{operations / seconds / 1e12:.1f} TFLOP/s", share=operations / seconds / machine.matrix)
    if target is not None:
        compare(result, result["share"] / target)
    if torch_seconds:
        result["torch_us"] = torch_seconds * 1e6
    return result


def compare(result, of_target):
    """Notes how much of its target a row reached."""
    result.update(of_target=of_target, met=of_target >= 1)
    return result


def absolute(result, rate, target):
    """Replaces the target by one in operations per second."""
    result["target"] = f">= {target / 1e12:.0f} TFLOP/s"
    return compare(result, rate / target)


def sdpa_seconds(clock, batch, queries, keys, q_heads, kv_heads, dim, causal):
    """Time of PyTorch's attention over contiguous K and V; None if it does not run."""
    q, k, v = (torch.randn(batch, heads, n, dim, device=clock.device, dtype=torch.bfloat16)
               for heads, n in ((q_heads, queries), (kv_heads, keys), (kv_heads, keys)))
    with contextlib.suppress(RuntimeError, NotImplementedError):
        return clock.seconds(lambda: torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q_heads != kv_heads))
    return None


def decode(clock, machine, dtype, group, dim, page, size, target, dry):
    kv_heads, rows = 8, 2 if dry else 32
    width = 2 * kv_heads * dim * KV_TYPES[dtype][1] + (2 * kv_heads * 4 if dtype in ("int8", "uint4") else 0)
    tokens = 40 if dry else max(1, int(size // (width * rows)))
    bench = Bench(clock, rows=rows, tokens=tokens, q_heads=kv_heads * group, kv_heads=kv_heads, dim=dim, dtype=dtype, page=page)
    try:
        seconds = bench.attend_seconds()
    finally:
        bench.close()
    beside = None
    if dtype == "bf16" and page == 16:
        beside = sdpa_seconds(clock, rows, 1, tokens, kv_heads * group, kv_heads, dim, False)
    return row(seconds, bytes_=rows * (tokens + 1) * width, machine=machine, target=target, torch_seconds=beside)


def latent(clock, machine, heads, rows, tokens, target, by_bytes, dry, simd=None):
    rows, tokens = (2, 30) if dry else (rows, tokens)
    bench = Bench(clock, rows=rows, tokens=tokens, q_heads=heads, kv_heads=1, dim=576, latent=512, page=64, simd=simd)
    try:
        seconds = bench.attend_seconds()
    finally:
        bench.close()
    keys = rows * (tokens + 1)
    work = {"bytes_": keys * 576 * 2} if by_bytes else {"operations": 2 * keys * heads * (576 + 512)}
    return row(seconds, machine=machine, target=target, **work)


def kernel_sets(clock):
    """The values of `simd` whose attention is measured, each with whether it multiplies by warpgroups. A GPU that does so has a
    second one that does not. The default is first."""
    names = kvcache.Context("cuda:0").describe()["simd_available"] if clock.on_card else []
    others = [name for name in names if name.endswith("_mma")]
    return [(None, bool(others))] + [(name, False) for name in others]


def listed(clock, machine, heads, rows, tokens, count, target, dry, row_format=None):
    """MLA over lists: `count` tokens of each sequence, as an indexer chooses them."""
    rows, tokens, count = (2, 30, 8) if dry else (rows, tokens, count)
    bench = Bench(clock, rows=rows, tokens=tokens, q_heads=heads, kv_heads=1, dim=576, latent=512, page=64,
                  row_format=row_format)
    lists = torch.stack([torch.randperm(tokens)[:count].sort().values for _ in range(rows)]).int()[:, None]
    try:
        seconds = bench.attend_seconds(indices=lists.to(clock.device))
    finally:
        bench.close()
    return row(seconds, bytes_=rows * count * (576 * 2 if row_format is None else 656), machine=machine, target=target)


def select(clock, machine, rows, tokens, count, dry):
    """The choice of `count` of the tokens of each sequence by 64 index heads."""
    rows, tokens, count = (2, 30, 8) if dry else (rows, tokens, count)
    heads, dim, each = 64, 128, -(-(tokens + 64) // 64) * 64
    context = kvcache.Context("cuda:0") if clock.on_card else kvcache.Context("cpu")
    cache = kvcache.Cache([kvcache.Layer(q_heads=heads, kv_heads=1, head_dim=dim, dtype="bf16", keys_only=True)], page_size=64,
                          capacity_tokens=rows * each, max_sequences=rows, max_batch_tokens=16384, context=context)
    ids, left = cache.add(rows), tokens
    key = torch.randn(16384, 1, dim, device=clock.device).to(torch.bfloat16)
    while left > 0:
        new = min(left, 16384 // rows)
        with cache.forward(ids, [new] * rows) as step:
            step.append(0, key[: new * rows])
        left -= new
    q, weights = torch.randn(rows, heads, dim, device=clock.device).to(torch.bfloat16), torch.randn(rows, heads, device=clock.device)
    out = torch.empty(rows, 1, count, dtype=torch.int32, device=clock.device)
    steps = []

    def prepare():
        steps.append(cache.forward(ids, [1] * rows))
        steps[-1].append(0, key[:rows])

    try:
        seconds = clock.seconds(lambda: steps[-1].select(0, q, count, weights, out=out), prepare, lambda: steps.pop().abort())
    finally:
        clock.synchronize()
        cache.close()
    return row(seconds, operations=2 * rows * (tokens + 1) * heads * dim, machine=machine)


def prefill(clock, machine, dtype, page, target, dry, simd=None, length=8192):
    length, q_heads, kv_heads, dim = (64 if dry else length), 32, 8, 128
    bench = Bench(clock, rows=1, tokens=0, room=length, q_heads=q_heads, kv_heads=kv_heads, dim=dim, dtype=dtype, page=page,
                  simd=simd)
    try:
        seconds = bench.attend_seconds(length)
    finally:
        bench.close()
    operations = 4 * q_heads * dim * length * (length + 1) // 2
    beside = sdpa_seconds(clock, 1, length, length, q_heads, kv_heads, dim, True) if dtype == "bf16" else None
    result = row(seconds, operations=operations, machine=machine, torch_seconds=beside)
    return result if target is None else absolute(result, operations / seconds, target)


def prefill_float8(clock, machine, dry, simd=None):
    """bf16 queries over float8 K and V: the time with bf16 K and V, divided by this time."""
    results = [prefill(clock, machine, dtype, 16, None, dry, simd) for dtype in ("bf16", "float8_e4m3fn")]
    result, part = results[1], results[0]["us"] / results[1]["us"]
    result.update(rate=f"{part:.2f} x bf16", target=">= 0.85 x bf16")
    return compare(result, part / 0.85)


def shared_prefix(clock, machine, target, dry, simd=None):
    """64 sequences that share a 32k prefix: how much faster this is than reading the prefix for each of them."""
    rows, prefix, suffix = (4, 64, 8) if dry else (64, 32768, 128)
    times = []
    for share in ("always", "never"):
        bench = Bench(clock, rows=rows, tokens=prefix + suffix, q_heads=32, kv_heads=8, dim=128, shared=prefix,
                      share_prefixes=share, simd=simd)
        try:
            times.append(bench.attend_seconds())
        finally:
            bench.close()
    ratio = times[1] / times[0]
    return compare({"us": times[0] * 1e6, "rate": f"{ratio:.1f} x", "target": f">= {target} x"}, ratio / target)


def append(clock, machine, rows, new, target, dry):
    if dry:
        rows, new = 2, min(new, 8)
    layers = 16 if new == 1 else 1
    bench = Bench(clock, rows=rows, tokens=0, room=new, q_heads=8, kv_heads=8, dim=128, layers=layers)
    try:
        seconds = bench.append_seconds(new, layers)
    finally:
        bench.close()
    moved = rows * new * 2 * 8 * 128 * 2 * 2  # read and written
    if new == 1:
        result = row(seconds, bytes_=moved, machine=machine)
        result.update(target="<= 3 us", share=None)
        return compare(result, 3e-6 / seconds)
    return row(seconds, bytes_=moved, machine=machine, target=target)


def export(clock, machine, dry):
    """A sequence's K and V gathered from its pages: read and written."""
    tokens = 40 if dry else 65536
    bench = Bench(clock, rows=1, tokens=tokens, q_heads=8, kv_heads=8, dim=128)
    try:
        held = []
        seconds = clock.kernel_seconds(lambda: held.append(bench.cache.export(bench.ids[0], 0)), "gather", held.clear)
    finally:
        bench.close()
    return row(seconds, bytes_=tokens * 2 * 8 * 128 * 2 * 2, machine=machine, target=0.85)


def copies(clock, machine, dry):
    """Forks copy partial last pages: pages of 1024 tokens, of which all but one token are in use."""
    rows, page = (2, 16) if dry else (64, 1024)
    bench = Bench(clock, rows=rows, tokens=page - 1, room=page + 1, q_heads=8, kv_heads=8, dim=128, page=page)
    try:
        children = []
        seconds = clock.seconds(lambda: children.extend(bench.cache.fork(bench.ids)),
                                finish=lambda: (bench.cache.remove(children), children.clear()))
    finally:
        bench.close()
    return row(seconds, bytes_=rows * (page - 1) * 2 * 8 * 128 * 2 * 2, machine=machine, target=0.85)


def compaction(clock, machine, dry):
    """Commits of token trees: the accepted path has every second node, and each moves to its final slot."""
    rows, nodes, start = (2, 7, 16) if dry else (64, 1023, 16)
    bench = Bench(clock, rows=rows, tokens=start, room=nodes, q_heads=8, kv_heads=8, dim=128, max_tree_nodes=nodes)
    parents = [-1, *(node - 1 - (node + 1) % 2 for node in range(1, nodes))]  # path 0, 2, 4 ..., a leaf beside each node
    k, v = bench.kv(rows * nodes)

    def prepare():
        with bench.cache.forward(bench.ids, [nodes] * rows, parents=[parents] * rows) as step:
            step.append(0, k, v)

    try:
        seconds = clock.kernel_seconds(lambda: bench.cache.commit(bench.ids, [nodes - 1] * rows), "copy_", prepare=prepare,
                                       finish=lambda: bench.cache.truncate(bench.ids, [start] * rows))
    finally:
        bench.close()
    return row(seconds, bytes_=rows * (nodes // 2) * 2 * 8 * 128 * 2 * 2, machine=machine, target=0.85)


def merge(clock, machine, dry):
    tokens, heads, dim = (4, 2, 16) if dry else (32768, 16, 128)
    context = kvcache.Context("cuda:0" if clock.on_card else "cpu")
    outputs = [torch.randn(tokens, heads, dim, device=clock.device) for _ in range(2)]
    lses = [torch.randn(tokens, heads, device=clock.device) for _ in range(2)]
    seconds = clock.kernel_seconds(lambda: context.merge_states(outputs, lses), "merge_kernel")  # not the zeroing
    return row(seconds, bytes_=3 * tokens * heads * (dim + 1) * 4, machine=machine, target=0.85)


def host_cost(clock, machine, dry):
    """A decode step of 256 sequences over 32 layers, whose attention is one graph replay: the host's time in begin and end,
    with Python's own, and the device's time in the replay and between its kernels."""
    rows, layers = (4, 2) if dry else (256, 32)
    bench = Bench(clock, rows=rows, tokens=100, room=256, q_heads=8, kv_heads=8, dim=128, layers=layers)
    try:
        with clock.side_stream():
            graph = bench.cache.create_graph(max_sequences=rows, max_tokens=rows)
            ids, lengths = bench.ids, [1] * rows
            q, (k, v), out = bench.random(rows, 8, 128), bench.kv(rows), bench.random(rows, 8, 128)

            def attend(step):
                for layer in range(layers):
                    step.attend(layer, q, k, v, out=out)

            replay = clock.recorded(lambda: bench.cache.forward(ids, lengths, graph=graph), attend)
            begins, ends = [], []

            def step():
                begin = time.perf_counter()
                opened = bench.cache.forward(ids, lengths, graph=graph)
                begun = time.perf_counter()
                replay(opened)
                replayed = time.perf_counter()
                opened.end()
                begins.append(begun - begin)
                ends.append(time.perf_counter() - replayed)

            whole = clock.host_seconds(step)
            steps = []
            on_device = clock.seconds(lambda: replay(steps[-1]),
                                      lambda: steps.append(bench.cache.forward(ids, lengths, graph=graph)), lambda: steps.pop().end())
            _, gaps = clock.kernels(lambda: replay(steps[-1]), "_kernel",
                                    prepare=lambda: steps.append(bench.cache.forward(ids, lengths, graph=graph)),
                                    finish=lambda: steps.pop().end())
    finally:
        bench.close()
    seconds, of_end = statistics.median(map(sum, zip(begins, ends))), statistics.median(ends)
    layer, gap = (1e6 * part / layers for part in (on_device, gaps))
    return {"us": seconds * 1e6, "rate": f"{rows} rows; {of_end * 1e6:.1f} us of it in the end; "
            f"{whole * 1e6:.0f} us with the replay's launch; a layer {layer:.1f} us, of which {gap:.1f} between kernels", "target": "<= 20 us", "of_target": 20e-6 / seconds, "met": seconds <= 20e-6}


def decodes(clock, machine, dry):
    sizes = ((64 << 20, 0.60), (256 << 20, 0.80), (1 << 30, 0.95))
    cases = [("bf16", 4, 128)]
    cases += [(dtype, group, dim) for dtype in ("bf16", "f16") for group in (1, 4, 8) for dim in (64, 128, 256)
              if (dtype, group, dim) not in cases]
    cases += [(dtype, group, dim) for dtype in ("float8_e4m3fn", "int8") for group in (4, 8, 1) for dim in (128, 64, 256)]
    for size, target in sizes[::-1]:
        for dtype, group, dim in cases:
            wanted = target - (0.07 if dtype in ("float8_e4m3fn", "int8") else 0)
            case = f"{dtype}, group {group}, D {dim}, page 16, {size >> 20} MB"
            yield "decode", case, lambda d=dtype, g=group, n=dim, s=size, w=wanted: decode(clock, machine, d, g, n, 16, s, w, dry)
    for dtype, size in (("uint4", 1 << 30), ("float4_e2m1fn", 1 << 30), ("float4_e2m1fn", 256 << 20)):
        yield ("decode", f"{dtype}, group 4, D 128, page 16, {size >> 20} MB",
               lambda d=dtype, s=size: decode(clock, machine, d, 4, 128, 16, s, 0.8, dry))
    for page, target in ((1, 0.8), (64, 0.95)):
        yield "decode", f"bf16, group 4, D 128, page {page}, 1024 MB", lambda p=page, t=target: decode(
            clock, machine, "bf16", 4, 128, p, 1 << 30, t, dry)


def attentions(clock, machine, dry, simd, by_warpgroups):
    """Attention of many rows and MLA, with the targets of warpgroup products or those of mma.sync."""
    name = "" if simd is None else f", {simd}"
    small, large, part, shared = (450e12, 520e12, 0.65, 18) if by_warpgroups else (300e12, 300e12, 0.45, 12)
    one_page = 64 if dry else 8192
    yield "prefill", f"bf16, D 128, causal 8k, page 16{name}", lambda: prefill(clock, machine, "bf16", 16, small, dry, simd)
    yield ("prefill", f"bf16, D 128, causal 8k, one page{name}",
           lambda: prefill(clock, machine, "bf16", one_page, large, dry, simd))
    yield "prefill", f"float8 K and V, D 128, causal 8k{name}", lambda: prefill_float8(clock, machine, dry, simd)
    yield "mla", f"128 heads, 64 x 4096{name}", lambda: latent(clock, machine, 128, 64, 4096, part, False, dry, simd)
    yield ("mla", f"16 heads, 512 MB{name}",
           lambda: latent(clock, machine, 16, 64, (512 << 20) // (64 * 1152), 0.85, True, dry, simd))
    yield "shared prefix", f"64 x (32k + 128), 32/8, D 128{name}", lambda: shared_prefix(clock, machine, shared, dry, simd)


def all_of(clock, machine, dry):
    """The works with one row of each first, so that a run that is cut short has something of all."""
    rest = list(decodes(clock, machine, dry))
    first = [item for item in rest if "group 4, D 128" in item[1] and ("1024 MB" in item[1] or "bf16" in item[1] and "64 MB" in item[1])]
    yield from first
    for simd, by_warpgroups in kernel_sets(clock):
        yield from attentions(clock, machine, dry, simd, by_warpgroups)
    yield "lists", "MLA, 128 heads, 2048 of 64k, 64 rows", lambda: listed(clock, machine, 128, 64, 65000, 2048, 0.45, dry)
    yield "lists", "MLA, 16 heads, 2048 of 64k, 64 rows", lambda: listed(clock, machine, 16, 64, 65000, 2048, 0.6, dry)
    yield ("lists", "MLA in fp8_ds_mla, 128 heads, 2048 of 64k, 64 rows",
           lambda: listed(clock, machine, 128, 64, 65000, 2048, 0.45, dry, "fp8_ds_mla"))
    yield "select", "64 heads, D 128, 2048 of 64k, 64 rows", lambda: select(clock, machine, 64, 65000, 2048, dry)
    for dtype in ("f32", "int8", "uint4", "float4_e2m1fn"):
        yield ("prefill", f"{dtype}, D 128, causal 2k", lambda d=dtype: prefill(clock, machine, d, 16, None, dry, length=2048))
    yield "append", "2 x 16384 tokens of 8 heads, bf16, 268 MB", lambda: append(clock, machine, 2, 16384, 0.85, dry)
    yield "append", "a token of 256 rows", lambda: append(clock, machine, 256, 1, None, dry)
    yield "merge", "two parts of 32768 x 16 x 128", lambda: merge(clock, machine, dry)
    yield "gather", "a sequence of 65536 tokens, 512 MB", lambda: export(clock, machine, dry)
    yield "copy", "64 partial pages of 1023 tokens, by forks, 512 MB", lambda: copies(clock, machine, dry)
    yield "compaction", "paths of 64 trees of 1023 nodes, 268 MB", lambda: compaction(clock, machine, dry)
    yield "host", "begin and end of a step of 256 rows, 32 layers in a graph", lambda: host_cost(clock, machine, dry)
    yield from (item for item in rest if item not in first)
