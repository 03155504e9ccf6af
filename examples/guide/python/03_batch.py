"""All users in one batch: prompts in chunks, decode beside them, and a user who leaves in the middle of a step."""
from dataclasses import dataclass, field

import kvcache
import model

SYSTEM = "You are a terse assistant. Answer in one short word. "
USERS = {"Ada": "What is a page?", "Bob": "What does a fork share, and what does it copy?", "Cy": "Why?"}
ANSWER = 8  # tokens of an answer
CHUNK = 16  # most tokens that one row appends in a step, so that a long prompt does not hold up the others
LEAVES = ("Ada", 5)  # who closes the connection, and in which step

cache = kvcache.Cache(model.LAYERS, model.GROUPS, capacity_tokens=1024, rollback_tokens=8, deterministic=True)


@dataclass
class User:
    name: str
    sequence: int
    pending: list  # tokens that are not in the cache yet
    answer: list = field(default_factory=list)


def read_system_prompt():
    sequence, tokens = cache.add(), model.encode(SYSTEM)
    for begin in range(0, len(tokens), CHUNK):
        chunk = tokens[begin:begin + CHUNK]
        with cache.forward([sequence], [len(chunk)]) as step:
            model.run(step, chunk)
    return sequence


system = read_system_prompt()
users = [User(name, sequence, model.encode(question))
         for (name, question), sequence in zip(USERS.items(), cache.fork([system] * len(USERS)), strict=True)]
cache.remove([system])

number = 0
while users:
    number += 1
    chunks = [user.pending[:CHUNK] for user in users]
    counts = [len(chunk) for chunk in chunks]
    gone = None
    with cache.forward([user.sequence for user in users], counts) as step:
        for user in users:
            if (user.name, number) == LEAVES:
                gone = user
                cache.remove([user.sequence])  # its pages become free when the step ends
        predicted = model.run(step, [token for chunk in chunks for token in chunk])
    print(f"step {number}: " + ", ".join(f"{user.name} {count}" for user, count in zip(users, counts, strict=True)))

    end, staying = 0, []
    for user, count in zip(users, counts, strict=True):
        end += count                           # the rows of a batch come one after another
        user.pending = user.pending[count:]
        if user is gone:
            print(f"{user.name} left after {model.decode(user.answer)}")
            continue
        if not user.pending:                   # the whole prompt is read: the last row has the next token
            user.answer.append(predicted[end - 1])
            user.pending = user.answer[-1:]
        if len(user.answer) < ANSWER:
            staying.append(user)
        else:
            print(f"{user.name}: {model.decode(user.answer)}")
            cache.remove([user.sequence])
    users = staying
print(f"{cache.stats().pages_used} pages in use")
