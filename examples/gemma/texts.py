"""The demo's texts as tokens: a system prompt, and what each user adds to it."""
import json
from dataclasses import dataclass
from pathlib import Path

PROMPTS_FILE = Path(__file__).with_name("demo_prompts.json")


@dataclass(frozen=True)
class Texts:
    system: list    # ids, begin of sequence first
    users: list     # ids of each user's part
    questions: list
    stop_ids: frozenset  # an answer ends with the sequence or, in this prompt's form, with its paragraph

    @staticmethod
    def read(files) -> "Texts":
        texts, encode = json.loads(PROMPTS_FILE.read_text()), files.tokenizer.encode
        return Texts(system=encode(texts["system"]), users=[encode(text)[1:] for text in texts["users"]],  # one BOS only
                     questions=[text.strip().splitlines()[0].partition(": ")[2] for text in texts["users"]],
                     stop_ids=frozenset({files.eos_id, encode("\n\n")[-1]}))
