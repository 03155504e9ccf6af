"""The demo's texts as tokens: a system prompt, what each user adds to it, and what comes later."""
import json
from dataclasses import dataclass
from pathlib import Path

PROMPTS_FILE = Path(__file__).with_name("demo_prompts.json")


@dataclass(frozen=True)
class Texts:
    system: list    # ids, begin of sequence first
    users: list     # ids of each user's part
    questions: list
    new_visitor: list  # follows the system prompt
    follow_up: list  # follows the first user's answer and a paragraph's end
    paragraph: list
    stop_ids: frozenset  # an answer ends with the sequence or, in this prompt's form, with its paragraph

    @staticmethod
    def read(files) -> "Texts":
        texts, encode = json.loads(PROMPTS_FILE.read_text()), files.tokenizer.encode
        return Texts(system=encode(texts["system"]), users=[encode(text)[1:] for text in texts["users"]],  # one BOS only
                     questions=[text.strip().splitlines()[0].partition(": ")[2] for text in texts["users"]],
                     new_visitor=encode(texts["new_visitor"])[1:], follow_up=encode(texts["follow_up"])[1:],
                     paragraph=encode("\n\n")[1:],
                     stop_ids=frozenset({files.eos_id, encode("\n\n")[-1]}))
