"""Runs a small model of an architecture with the stock cache and with pages, and reports the result."""

import copy
import inspect
import math
from dataclasses import dataclass, field
from pathlib import Path

import torch
import transformers
from transformers.cache_utils import CacheLayerMixin

import kvcache
from architectures import NOT_EXAMINED, PADDING_COUNTS, default_config, names, small_config, small_model
from kvcache.integrations.transformers import PagedCache
from twin import VOCABULARY, prompts, worst_error

TOLERANCE = 1e-4  # of a step's largest |logit|, in float32
LENGTHS = (15, 4, 9)  # left padding; the first is longer than the windows
CHUNKS = (6, 9)
FIRST_TOKEN = 3
PAGE = Path(__file__).parents[2] / "docs/reference/transformers-models.md"


@dataclass
class Finding:
    """The result of one architecture."""

    attention: str = ""  # who computed it; "" = it does not run
    message: str = ""  # of the refusal
    reason: str = ""  # the reason, if there is nothing to compare
    fault: str = ""  # wrong logits, or an error that is not a refusal
    error: float = 0.0
    steps: list = field(default_factory=list)  # what was compared


class Unlike(Exception):
    """Logits differ."""


class Apart:
    """The stock cache of each row, which sees no padding."""

    is_croppable = True

    def __init__(self, config):
        self.caches = [transformers.DynamicCache(config=config) for _ in LENGTHS]

    def activate_past_recording(self):
        pass

    def reorder_cache(self, rows):
        self.caches = [copy.deepcopy(self.caches[row]) for row in rows]

    def run(self, model, ids, mask):
        logits = torch.zeros(*ids.shape, VOCABULARY)
        for row, cache in enumerate(self.caches):
            seen = mask[row, -ids.shape[1]:].bool()
            if seen.any():
                logits[row, seen] = model(ids[row, seen][None], past_key_values=cache).logits[0]
        return logits


class Pair:
    """The same forwards and cache operations on the stock cache and on pages."""

    def __init__(self, model, cache, finding):
        self.model, self.paged, self.finding = model, cache, finding
        apart = finding.attention == "kvcache" and model.config.model_type in PADDING_COUNTS
        self.stock = (Apart if apart else transformers.DynamicCache)(config=model.config)
        if cache.is_croppable:
            self.stock.activate_past_recording()
        parameters = inspect.signature(model.forward).parameters
        self.takes_positions = "position_ids" in parameters
        self.name = "past_key_values" if "past_key_values" in parameters else "cache_params"
        self.mask = torch.zeros(len(LENGTHS), 0, dtype=torch.long)
        self.masked = any(isinstance(layer, CacheLayerMixin) for layer in cache.layers)  # else there is no padding

    def run(self, cache, attention, ids):
        self.model.set_attn_implementation(attention)
        arguments = dict(attention_mask=self.mask if self.masked else None, use_cache=True)
        if self.takes_positions:
            arguments["position_ids"] = (self.mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1]:]
        with torch.no_grad():
            if isinstance(cache, Apart):
                return cache.run(self.model, ids, self.mask)
            return self.model(ids, **{self.name: cache}, **arguments).logits

    def feed(self, name, ids, mask=None):
        mask = torch.ones_like(ids) if mask is None else mask
        self.mask = torch.cat([self.mask, mask], dim=1)
        expected = self.run(self.stock, "eager", ids)
        ours = self.run(self.paged, "kvcache" if self.finding.attention == "kvcache" else "eager", ids)
        seen = mask.bool()
        error = worst_error(ours[seen], expected[seen])
        if not error <= TOLERANCE:  # also catches NaN
            raise Unlike(f"{name}: {error:.1e} of the largest logit")
        self.finding.error = max(self.finding.error, error)
        if name not in self.finding.steps:
            self.finding.steps.append(name)

    def random(self, count):
        return torch.randint(FIRST_TOKEN, VOCABULARY, (len(self.mask), count))


def exercise(pair):
    """Prefill in chunks with padding, decoding, forks of rows, and rejected drafts."""
    ids, arguments = prompts(*LENGTHS if pair.masked else LENGTHS[:1] * len(LENGTHS))
    parts = zip(ids.split(CHUNKS, dim=1), arguments["attention_mask"].split(CHUNKS, dim=1))
    for part, mask in parts:
        pair.feed("chunks of a batch", part, mask)
    for _ in range(3):
        pair.feed("decode", pair.random(1))
    for cache in (pair.stock, pair.paged):
        cache.reorder_cache(torch.tensor([2, 0, 0]))
    pair.mask = pair.mask[[2, 0, 0]]
    pair.feed("fork", pair.random(1))
    fork = copy.deepcopy(pair.paged), copy.deepcopy(pair.stock), pair.mask
    pair.feed("fork", pair.random(1))
    pair.paged, pair.stock, pair.mask = fork
    pair.feed("fork", pair.random(2))
    if pair.paged.is_croppable and pair.stock.is_croppable:
        drafts, before = pair.random(5), copy.deepcopy(pair.stock)
        pair.feed("drafts", drafts)
        pair.paged.crop(-3)
        pair.mask = pair.mask[:, :-3]
        if pair.model._is_stateful:  # the stock cache cannot drop tokens, so one that has not seen them goes on
            pair.stock = before
            pair.run(before, "eager", drafts[:, :2])
        else:
            pair.stock.crop(-3)
        pair.feed("drafts", pair.random(1))


def examine(name, attention):
    """Runs one architecture with one attention: "kvcache", or "model"."""
    model, finding = small_model(name), Finding(attention)
    torch.manual_seed(1)
    cache = PagedCache(model.config, capacity_tokens=512, page_size=4, attention=attention)
    try:
        exercise(Pair(model, cache, finding))
    finally:
        model.set_attn_implementation("eager")
    return finding


def refusal(error):
    return isinstance(error, (NotImplementedError, TypeError, AttributeError, ValueError)) and (
        "PagedCache" in str(error) or 'attn_implementation="kvcache"' in str(error))


def refused_by_its_configuration(config):
    """The message, if no cache can be made with either attention."""
    message = ""
    for attention in ("kvcache", "model"):
        try:
            PagedCache(config, capacity_tokens=64, attention=attention)
        except (NotImplementedError, kvcache.InvalidArgument) as error:
            message = str(error)
        else:
            return ""
    return message


def keeps_a_cache(model):
    with torch.no_grad():
        out = model(torch.full((1, 3), FIRST_TOKEN), use_cache=True)
    return isinstance(out.get("past_key_values", out.get("cache_params")), transformers.Cache)


def census(name):
    """The result of an architecture with the library's attention, else with its own attention over pages, else the
    reason."""
    if name in NOT_EXAMINED:
        return Finding(reason=NOT_EXAMINED[name])
    config = default_config(name)
    if (decoder := config.get_text_config(decoder=True).model_type) != config.model_type:
        return Finding(reason=f"it has other parts besides text; its text decoder is `{decoder}`")
    try:
        if (message := refused_by_its_configuration(small_config(name))) and "num_attention_heads" not in message:
            return Finding(message=message)
        if not keeps_a_cache(small_model(name)):
            return Finding(reason="it keeps no `Cache` of transformers")
        try:
            return examine(name, "kvcache")
        except Exception as error:
            if isinstance(error, Unlike) or not refusal(error):
                raise
        return examine(name, "model")
    except Exception as error:
        return Finding(fault=f"{type(error).__name__}: {error}")


HEADER = """# Architectures of transformers

What each model type of `AutoModelForCausalLM` (transformers {version}) does with `PagedCache`
([guide](../guide/transformers.md)). Each one is built with small random weights and run in float32 beside the stock cache and
its eager attention: a left-padded batch of unlike lengths in two chunks, single tokens, rows that are reordered and copied, and
drafts that are dropped, where the cache can drop them. The largest difference of logits of any step is given in powers of ten,
relative to the largest logit of the step. A difference above 1e-4 is a failure.

`bash scripts/test.sh transformers-census` writes this table. {counts}

- **kvcache**: the library computes attention over its pages.
- **model**: the model computes attention, over copies of what is in the pages: `PagedCache(..., attention="model")`.
- **refused**: with the message in the last column.
- **-**: there is nothing to compare.

| model type | attention | logits within | drafts | |
|---|---|---|---|---|
"""


def row(name, finding):
    """A line of the table. Errors are rounded up to powers of ten, as they vary with the machine."""
    if not finding.attention:
        kind = "**fault**" if finding.fault else "refused" if finding.message else "-"
        return f"| `{name}` | {kind} | | | {finding.fault or finding.message or finding.reason} |"
    exponent = max(-6, math.ceil(math.log10(max(finding.error, 1e-9))))
    return f"| `{name}` | {finding.attention} | 1e{exponent} | {'yes' if 'drafts' in finding.steps else 'no'} | |"


def page(findings):
    kinds = ["kvcache", "model", "refused", "-"]
    rows = {name: row(name, finding) for name, finding in findings.items()}
    count = {kind: sum(f"| {kind} |" in line for line in rows.values()) for kind in kinds}
    counts = (f"Of {len(rows)}, {count['kvcache'] + count['model']} run ({count['kvcache']} with the library's attention), and "
              f"{count['refused']} are refused.")
    return HEADER.format(version=transformers.__version__, counts=counts) + "\n".join(rows.values()) + "\n"


def main():
    """Writes the table, and fails if there is a fault."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    findings = {}
    for name in names():
        findings[name] = census(name)
        print(row(name, findings[name]), flush=True)
    PAGE.write_text(page(findings))
    faults = sum(bool(finding.fault) for finding in findings.values())
    print(f"{len(findings) - faults} passed, {faults} failed")
    raise SystemExit(faults > 0)


if __name__ == "__main__":
    main()
