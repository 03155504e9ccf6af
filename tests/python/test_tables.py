"""Tables for other kernels: Step.tables and kvcache.Plan, read by a few lines written from the kernels' documents."""
import kvcache
import numpy as np
import pytest

PAGE = 4


def seen(tables, num_tokens):
    """Slots that each query sees, by block table and lengths; causal is bottom-right."""
    lists = [[] for _ in range(num_tokens)]
    for r in range(tables.num_rows):
        n = tables.cache_seqlens[r]
        slots = [tables.block_table[r, i // tables.page_size] * tables.page_size + i % tables.page_size for i in range(n)]
        begin, end = tables.cu_seqlens_q[r], tables.cu_seqlens_q[r + 1]
        for i in range(begin, end):
            last = n - (end - 1 - i) if tables.causal else n
            lists[i] += slots[tables.leftpad[r]:last]
    return lists


@pytest.fixture
def table():
    return np.random.default_rng(3).permutation(60).astype(np.int32).reshape(3, 20)


def slot(table, row, position):
    return table[row, position // PAGE] * PAGE + position % PAGE


def test_step_tables():
    layer = kvcache.Layer(q_heads=1, kv_heads=1, head_dim=4)
    cache = kvcache.Cache(layers=[layer], page_size=PAGE, capacity_tokens=256)
    a, b = cache.add(), cache.add()
    kv = np.zeros((16, 1, 4), np.float32)
    with cache.forward([a, b], [6, 3]) as step:
        step.append(0, kv, kv)
    with cache.forward([a, b], [1, 4]) as step:
        tables = step.tables(0, pad=-7)
        step.append(0, kv, kv)
    pages = [cache.pages(a), cache.pages(b)]  # tables are copies, so they outlive the step
    assert tables.cache_seqlens.tolist() == [7, 7] and tables.max_seqlen_q == 4 and tables.causal
    assert tables.block_table.tolist() == [list(pages[0]), list(pages[1])]
    assert tables.last_page_len.tolist() == [3, 3] and tables.indptr.tolist() == [0, 2, 4]
    assert tables.slot_mapping.dtype == np.int64
    assert tables.slot_mapping.tolist() == [pages[0][1] * PAGE + 2] + [
        pages[1][p // PAGE] * PAGE + p % PAGE for p in (3, 4, 5, 6)]
    assert tables.positions.tolist() == [6, 3, 4, 5, 6] and tables.last_rows.tolist() == [0, 4]
    assert tables.sink_tokens is None and tables.generation_word is None
    with cache.forward([a], [1]) as step:
        only = step.tables(arrays=["csr"], slots=True)
        assert only.block_table is None and only.page_size == 1 and len(only.indices) == 8
        with pytest.raises(kvcache.InvalidArgument, match="no trees"):
            step.tables(part="prefix")
        with pytest.raises(kvcache.OutOfRange):
            step.tables(2)
        with pytest.raises(ValueError, match="part"):
            step.tables(part="middle")
        with pytest.raises(ValueError, match="arrays"):
            step.tables(arrays=["sparse"])
        step.append(0, kv, kv)


def test_extend_by_both_kinds_of_table(table):
    slots = (table[:, :, None] * PAGE + np.arange(PAGE, dtype=np.int32)).reshape(3, -1)
    results = []
    for arrays in ({"block_table": table}, {"req_to_token": slots}):
        plan = kvcache.Plan("extend", page_size=PAGE, num_pool_pages=60)
        assert plan.build(np.array([7, 0]), append_lengths=np.array([2, 5]), rows=np.array([2, 0]), **arrays) == 1
        tables = plan.tables()
        assert seen(tables, 7) == [[slot(table, 2, p) for p in range(8 + i)] for i in range(2)] + [
            [slot(table, 0, p) for p in range(1 + i)] for i in range(5)]
        results.append(tables.block_table.tolist())
    assert results[0] == results[1]


def test_verify_a_tree_in_two_parts(table):
    plan = kvcache.Plan("verify", num_draft_tokens=3, page_size=PAGE)
    plan.build(np.array([6], np.int32), block_table=table, tree_parents=np.array([-1, 0, 0]))
    prefix, branches = plan.tables(part="prefix"), plan.tables(part="branches")
    assert seen(prefix, 3) == [[slot(table, 0, p) for p in range(6)]] * 3 and not prefix.causal
    assert seen(branches, 3) == [[slot(table, 0, p) for p in path] for path in ([6], [6, 7], [6, 8])]
    assert branches.positions.tolist() == [6, 7, 7] and branches.page_size == 1
    with pytest.raises(kvcache.InvalidArgument, match="part 0"):
        plan.tables()


def test_draft_steps_in_one_build(table):
    plan = kvcache.Plan("draft_decode", num_steps=3, top_k=1, page_size=PAGE)
    plan.build(np.array([5, 7]), block_table=table)
    for step in range(3):
        tables = plan.tables(step)
        assert tables.cache_seqlens.tolist() == [5 + step + 1, 7 + step + 1]
        assert tables.slot_mapping.tolist() == [slot(table, 0, 5 + step), slot(table, 1, 7 + step)]
    with pytest.raises(kvcache.OutOfRange, match="step 3"):
        plan.tables(3)


def test_encoder_tokens_come_first(table):
    plan = kvcache.Plan("decode", page_size=PAGE, slots=True)
    plan.build(np.array([2, 4]), block_table=table, encoder_lens=np.array([5, 0]))
    assert seen(plan.tables(), 2) == [[slot(table, 0, 5 + p) for p in range(3)], [slot(table, 1, p) for p in range(5)]]
    assert seen(plan.tables(part="encoder"), 2) == [[slot(table, 0, p) for p in range(5)], []]


def test_graph_views_follow_the_builds(table):
    plan = kvcache.Plan("decode", page_size=PAGE, graph=True, max_rows=4, max_pages_per_row=20)
    first = plan.build(np.array([7, 3]), block_table=table)
    tables = plan.tables()
    assert tables.block_table.shape == (4, 20) and tables.cache_seqlens.tolist() == [8, 4, 0, 0]
    assert not tables.block_table.flags.writeable
    second = plan.build(np.array([8]), block_table=table)
    assert tables.cache_seqlens.tolist() == [9, 0, 0, 0] and tables.block_table[0, 2] == table[0, 2]
    plan.check(second)
    with pytest.raises(kvcache.Stale):
        plan.check(first)
    with pytest.raises(kvcache.OutOfRange, match=r"seq_lens\[0\] is -1") as failure:
        plan.build(np.array([-1]), block_table=table)
    assert failure.value.row == 0 and failure.value.status == 10
    assert tables.generation_word.tolist() == [0]
    with pytest.raises(kvcache.Stale):
        plan.tables()
    del plan
    assert tables.cache_seqlens.tolist() == [9, 0, 0, 0]  # views keep the plan alive


def test_rows_that_grew(table):
    plan = kvcache.Plan("decode", page_size=PAGE, arrays=["dense"])
    plan.build(np.array([7, 3]), block_table=table)
    plan.build(np.array([8, 4]), block_table=table, rows_grew=True)
    assert plan.tables().block_table.tolist() == [table[0, :3].tolist(), [*table[1, :2].tolist(), -1]]
    with pytest.raises(kvcache.InvalidArgument, match="row 1"):
        plan.build(np.array([9, 2]), block_table=table, rows_grew=True)


def test_what_is_no_plan(table):
    with pytest.raises(kvcache.InvalidArgument, match="mode"):
        kvcache.Plan("prefill")
    plan = kvcache.Plan("decode")
    with pytest.raises(TypeError):
        plan.build([1, 2], block_table=table)
    with pytest.raises(kvcache.DType, match="block_table"):
        plan.build(np.array([1]), block_table=table.astype(np.int64))
    with pytest.raises(kvcache.NullArgument, match="block_table"):
        plan.build(np.array([1]))
