"""One sequence: read a prompt, then decode one token after another."""
import kvcache
import model

# All memory is reserved here. The window of the first layer keeps 8 tokens more, so that 8 tokens can be taken back.
cache = kvcache.Cache(model.LAYERS, model.GROUPS, capacity_tokens=1024, rollback_tokens=8, deterministic=True)


def forward(sequence, tokens):
    """Appends tokens to a sequence, and gives the token that comes next."""
    with cache.forward([sequence], [len(tokens)]) as step:  # reserves the pages
        hidden = model.embed(tokens)
        for layer in range(len(model.LAYERS)):
            q, k, v = model.project(hidden)
            hidden = hidden + step.attend(layer, q, k, v)   # stores k and v, then attends to everything stored
    return model.predict(hidden)[-1]                        # the block has ended the step: its tokens stay


def show(sequence):
    sliding, full = ((cache.pages(sequence, group) >= 0).sum() for group in (model.SLIDING, model.FULL))
    print(f"{cache.length(sequence)} tokens in {sliding} pages of the sliding layer and {full} of the full layer")


prompt = model.encode("Once upon a time there was a cache that kept what it had read.")
sequence = cache.add()
token = forward(sequence, prompt)
show(sequence)

answer = [token]
while len(answer) < 40:
    token = forward(sequence, [token])
    answer.append(token)
show(sequence)
print(f"answer: {model.decode(answer)}")
cache.remove([sequence])
print(f"{cache.stats().pages_used} pages in use")
