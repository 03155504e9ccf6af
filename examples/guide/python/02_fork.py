"""A system prompt that is computed once, for three users."""
import kvcache
import model

SYSTEM = "You are a terse assistant. Answer in one short word. "
USERS = {"Ada": "What is a page?", "Bob": "What does a fork share, and what does it copy?", "Cy": "Why?"}
ANSWER = 8  # tokens of an answer

cache = kvcache.Cache(model.LAYERS, model.GROUPS, capacity_tokens=1024, rollback_tokens=8, deterministic=True)


def forward(sequence, tokens):
    """Appends tokens to a sequence, and gives the token that comes next."""
    with cache.forward([sequence], [len(tokens)]) as step:
        return model.run(step, tokens)[-1]


def show(what):
    stats = cache.stats()
    print(f"{what}: {stats.pages_used} pages in use, {stats.pages_shared} of them shared, "
          f"{stats.tokens_logical} tokens in {stats.num_sequences} sequences")


system = cache.add()
forward(system, model.encode(SYSTEM))
show("system prompt")

sequences = cache.fork([system] * len(USERS))  # whole pages are shared, and the last one is copied
cache.remove([system])                         # the users keep what they share
show("three forks")

for sequence, (name, question) in zip(sequences, USERS.items(), strict=True):
    answer = [forward(sequence, model.encode(question))]
    while len(answer) < ANSWER:
        answer.append(forward(sequence, answer[-1:]))
    print(f"{name}: {model.decode(answer)}")
show("three answers")

cache.remove(sequences)
show("the end")
