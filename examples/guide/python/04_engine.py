"""A small scheduler: admission, preemption when pages run out, rejected drafts, and prompts that reuse a conversation."""
from dataclasses import dataclass, field

import kvcache
import model

SYSTEM = "You are a terse assistant. Answer in one short word. "
ANSWER = 24  # tokens of an answer
PAGES = 11   # of the full layer: too few for three users


@dataclass
class Request:
    name: str
    tokens: list                # the prompt, then also the answer
    drafts: list = field(default_factory=list)  # a guess at what follows the first token of the answer
    sequence: int | None = None
    cached: int = 0             # how many of the tokens are in the cache

    def __post_init__(self):
        self.prompt = len(self.tokens)

    @property
    def answer(self):
        return self.tokens[self.prompt:]

    def next(self):
        """What its row appends in the next step: all that is not in the cache, and the drafts when the prompt is read."""
        return self.tokens[self.cached:] + (self.drafts if self.answer else [])


def batch(requests):
    return [request.sequence for request in requests], [len(request.next()) for request in requests]


class Engine:
    def __init__(self):
        self.cache = kvcache.Cache(model.LAYERS, model.GROUPS, capacity_pages=PAGES, rollback_tokens=8,
                                   deterministic=True, prefix_index=True)
        self.waiting, self.running, self.number = [], [], 0

    def serve(self):
        """Answers all requests that wait."""
        while self.waiting or self.running:
            self.number += 1
            self.admit()
            step = self.begin()
            rows = [request.next() for request in self.running]
            with step:
                predicted = model.run(step, sum(rows, []))
            for request, row in zip(list(self.running), rows, strict=True):
                self.take(request, row, predicted[:len(row)])
                predicted = predicted[len(row):]
                if len(request.answer) >= ANSWER:
                    print(f"step {self.number}: {request.name} has {model.decode(request.answer[:ANSWER])}")
                    self.release(request)
                    self.running.remove(request)

    def admit(self):
        """Starts requests, the one that waits longest first, as long as the next step has room for them."""
        while self.waiting:
            request = self.waiting[0]
            try:
                request.sequence, hit = self.cache.attach_prefix(request.tokens)
                request.cached = hit.tokens
                self.cache.check_fit(*batch([*self.running, request]))
            except kvcache.Capacity:
                self.release(request)
                if not self.running:
                    raise  # it does not even fit alone
                return
            print(f"step {self.number}: {request.name} starts, {hit.tokens} of {len(request.tokens)} tokens are cached")
            self.running.append(self.waiting.pop(0))

    def begin(self):
        """Begins a step for all who run. While pages are missing, the one who started last has to wait again."""
        while True:
            try:
                return self.cache.forward(*batch(self.running))
            except kvcache.OutOfPages as full:
                if len(self.running) == 1:
                    raise
                request = self.running.pop()
                print(f"step {self.number}: pages needed {full.required}, free {full.available}: {request.name} waits")
                self.release(request)
                self.waiting.insert(0, request)

    def take(self, request, row, predicted):
        """Takes what the model predicted after each token of a row. Drafts stay as far as they agree with it."""
        plain = len(request.tokens) - request.cached
        drafts, accepted = row[plain:], 0
        while accepted < len(drafts) and drafts[accepted] == predicted[plain - 1 + accepted]:
            accepted += 1
        request.cached += plain + accepted
        if drafts:
            self.cache.truncate([request.sequence], [request.cached])  # the rejected drafts go
            print(f"step {self.number}: {accepted} of the drafts {model.decode(drafts)} are right")
            request.drafts = []
        request.tokens += predicted[plain - 1:plain + accepted]

    def release(self, request):
        """Gives up the sequence. Its tokens stay findable, until their pages are needed."""
        if request.sequence is not None:
            self.cache.publish_prefix(request.sequence, request.tokens[:request.cached])
            self.cache.remove([request.sequence])
        request.sequence, request.cached = None, 0


def main():
    engine = Engine()
    cache = engine.cache

    # The system prompt is read before the first request comes. The pin keeps it from being evicted.
    system = Request("system", model.encode(SYSTEM), sequence=cache.add())
    with cache.forward(*batch([system])) as step:
        model.run(step, system.tokens)
    system.cached = len(system.tokens)
    engine.release(system)
    pin, _ = cache.pin_prefix(system.tokens)

    ada, bob, cy = (Request(name, system.tokens + model.encode(question)) for name, question in (
        ("Ada", "What is a page?"), ("Bob", "What does a fork share, and what does it copy?"), ("Cy", "Why?")))
    engine.waiting += [ada, bob, cy]
    engine.serve()

    # Cy goes on: the second prompt begins with the first conversation.
    engine.waiting.append(Request("Cy", cy.tokens + model.encode(" And then?"), drafts=model.encode("mhnqq")))
    engine.serve()

    cache.unpin_prefix(pin)
    stats = cache.stats()
    print(f"pages used {stats.pages_used}, of them only remembered {stats.pages_idle}, evicted {stats.pages_evicted}")


if __name__ == "__main__":
    main()
