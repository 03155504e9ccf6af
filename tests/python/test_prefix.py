"""The prefix index: a second request begins with the pages of the first, and attends to the same keys."""

import kvcache
import numpy as np
import pytest


def layer(**more):
    return kvcache.Layer(**(dict(q_heads=2, kv_heads=1, head_dim=8) | more))


def rows(tokens, heads):
    """A model in which a token's q, k and v follow from its id alone."""
    return np.stack([np.random.default_rng(token).standard_normal((heads, 8)) for token in tokens]).astype(np.float32)


def compute(cache, sequence, tokens):
    with cache.forward([sequence], [len(tokens)]) as step:
        return [step.attend(i, rows(tokens, 2), rows(tokens, 1), rows(tokens, 1)) for i in range(LAYERS)]


LAYERS = 2


@pytest.fixture
def cache():
    layers = [layer(group=0), layer(group=1)]
    with kvcache.Cache(layers, [kvcache.Full(), kvcache.Sliding(6)], page_size=4, capacity_tokens=64, max_sequences=6,
                       prefix_index=True) as made:  # fmt: skip
        yield made
        made.check_invariants()


def test_a_second_request_computes_only_the_rest(cache):
    prompt = list(range(10))
    first, hit = cache.attach_prefix(prompt)
    assert (hit.tokens, hit.known_tokens, hit.limited_by) == (0, 0, None)
    compute(cache, first, prompt)
    assert cache.publish_prefix(first, prompt) == kvcache.Published(known_tokens=10, pages_added=6, pages_freed=0)
    cache.remove(first)
    question = [*prompt, 77, 78]
    second, hit = cache.attach_prefix(np.array(question, np.int64))
    assert hit.token_ns > 0
    assert hit == kvcache.PrefixHit(tokens=10, copied_tokens=2, known_tokens=10, limited_by=None, load_tokens=10, load_ns=0,
                                    token_ns=hit.token_ns)  # fmt: skip
    found = compute(cache, second, question[hit.tokens :])
    fresh = cache.add()
    computed = compute(cache, fresh, question)
    for a, b in zip(found, computed):
        np.testing.assert_allclose(a, b[10:], rtol=1e-5, atol=1e-6)
    stats = cache.stats()
    assert (stats.prefix_attaches, stats.prefix_tokens, stats.pages_published) == (2, 10, 6)


def test_the_last_token_is_left_unless_it_may_be_found(cache):
    sequence = cache.add()
    compute(cache, sequence, [1, 2, 3, 4, 5])
    cache.publish_prefix(sequence, [1, 2, 3, 4, 5])
    assert cache.match_prefix([1, 2, 3, 4, 5]).tokens == 4
    assert cache.match_prefix([1, 2, 3, 4, 5], allow_all=True).tokens == 5


def test_salts_sessions_pins_and_priorities(cache):
    big = 2**64 - 1
    prompt = list(range(8))
    sequence = cache.add()
    compute(cache, sequence, prompt)
    cache.set_time(5)
    cache.publish_prefix(sequence, prompt, salt=big, session=3, priority=9, time_to_live=7)
    assert cache.match_prefix(prompt, salt=big, allow_all=True).tokens == 8
    assert cache.match_prefix(prompt, salt=1, allow_all=True).tokens == 0
    pin, hit = cache.pin_prefix(prompt, salt=big)
    assert hit.tokens == 8
    cache.remove(sequence)
    assert cache.stats().pages_idle == 0
    cache.unpin_prefix(pin)
    with pytest.raises(kvcache.StaleId):
        cache.unpin_prefix(pin)
    assert cache.stats().pages_idle == 4
    cache.set_prefix_priority(prompt, 1, salt=big)
    cache.set_session_priority(3, 2, 10)
    assert cache.drop_session(4) == 0
    assert cache.drop_session(3) == 4
    assert cache.drop_prefix([], salt=big) == 0


def test_adapters_and_media_are_apart(cache):
    prompt, cat, dog = list(range(8)), [(5, 2, bytes([1] * 32)), (20, 4, bytes(32))], [(5, 2, bytes([2] * 32))]
    sequence = cache.add()
    compute(cache, sequence, prompt)
    cache.publish_prefix(sequence, prompt, adapter=b"sql", media=cat)
    assert cache.match_prefix(prompt, adapter=b"sql", media=iter(cat), allow_all=True).tokens == 8
    assert cache.match_prefix(prompt, adapter=b"sql", media=dog, allow_all=True).tokens == 5
    assert cache.match_prefix(prompt, adapter=b"sql", allow_all=True).tokens == 5
    assert cache.match_prefix(prompt, media=cat, allow_all=True).tokens == 0
    pin, hit = cache.pin_prefix(prompt, adapter=b"sql", media=cat)
    assert hit.tokens == 8
    cache.unpin_prefix(pin)
    cache.set_prefix_priority(prompt, 1, adapter=b"sql", media=cat)
    assert cache.attach_prefix(prompt, adapter=b"sql", media=dog)[1].tokens == 5
    assert cache.drop_prefix(prompt, adapter=b"sql", media=dog) == 0
    assert cache.drop_prefix(prompt, adapter=b"sql", media=cat) > 0
    assert cache.drop_prefix([], adapter=b"s") == 0
    assert cache.drop_prefix([], adapter=b"sql") > 0
    with pytest.raises(kvcache.OutOfRange, match="media"):
        cache.match_prefix(prompt, media=[(5, 2, bytes(32)), (6, 1, bytes(32))])
    with pytest.raises(kvcache.InvalidArgument, match="match_prefix: the hash of a media span must be 32 bytes"):
        cache.match_prefix(prompt, media=[(5, 2, b"short")])
    with pytest.raises(TypeError):
        cache.match_prefix(prompt, media=[5])
    with pytest.raises(TypeError):
        cache.match_prefix(prompt, adapter="sql")


def test_steps_evict_what_no_sequence_uses(cache):
    for begin in (0, 100, 200):
        sequence = cache.add()
        compute(cache, sequence, range(begin, begin + 16))
        cache.publish_prefix(sequence, range(begin, begin + 16))
        cache.remove(sequence)
    sequence = cache.add()
    assert cache.max_append(sequence) == 64
    compute(cache, sequence, range(300, 350))
    assert cache.stats(0).pages_evicted > 0
    with pytest.raises(kvcache.OutOfPages):
        cache.forward([cache.add()], [20])


def test_misuse_is_refused(cache):
    sequence = cache.add()
    with pytest.raises(kvcache.OutOfRange):
        cache.publish_prefix(sequence, [1])
    with pytest.raises(kvcache.OutOfRange):
        cache.match_prefix([2**31])
    with pytest.raises(kvcache.OutOfRange):
        cache.set_prefix_priority([1], 101)
    with pytest.raises(kvcache.InvalidArgument):
        cache.drop_session(0)
    with pytest.raises(TypeError):
        cache.match_prefix(3)
    with pytest.raises(TypeError):
        cache.match_prefix([1], salt=-1)
    with kvcache.Cache([layer()], capacity_tokens=64) as plain, pytest.raises(kvcache.Unsupported, match="prefix_index"):
        plain.match_prefix([1])
    with pytest.raises(kvcache.InvalidArgument, match="prefix_pages"):
        kvcache.Cache([layer()], capacity_tokens=64, prefix_pages=4)
