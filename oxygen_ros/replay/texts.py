"""What a policy said, beside what was said while the bag was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..embodiment.errors import InputError
from ..robot_inputs import Feed
from .bag import Bag
from .measures import percentiles
from .rollout import Rollout


def recorded_texts(bag: Bag, source: Feed) -> list[str]:
    """Finished texts in the order in which they ended: of std_msgs/String, or of LanguageTokens joined."""
    texts: list[str] = []
    open_ones: dict[int, str] = {}
    for message in bag.messages([source.topic]):
        try:
            said = source.decode(message.data)
        except InputError:
            continue
        if hasattr(said, "data"):
            texts.append(said.data)
            continue
        open_ones[said.request_id] = open_ones.get(said.request_id, "") + said.text
        if said.last:
            text = open_ones.pop(said.request_id)
            if said.finish_reason in (1, 2):  # END_OF_TEXT, LENGTH
                texts.append(text)
    return texts


def language(rollout: Rollout, recorded: Sequence[str] | None) -> dict[str, Any]:
    """Requests, their speed, and each finished answer against the recorded one of the same number."""
    answers = rollout.answers
    tokens = sum(m.stats.tokens for m in rollout.moments if m.stats)
    decoding = sum(m.stats.decode for m in rollout.moments if m.stats and m.stats.tokens)
    first = [(a.first_ns - a.asked_ns) / 1e9 for a in answers if a.first_ns]
    said = [a.text for a in answers if a.finished]
    return {
        "requests": len(answers),
        "finished": len(said),
        "tokens": sum(a.tokens for a in answers),
        "tokens_per_s": tokens / decoding if decoding else None,
        "time_to_first_token_s": percentiles(first),
        "answers": [vars(answer) for answer in answers],
        "against_recorded": None if recorded is None else alike(said, recorded),
    }


def alike(ours: Sequence[str], theirs: Sequence[str]) -> dict[str, Any]:
    """exact: share of pairs that are the same. edit_distance: mean over pairs, per character of the longer text."""
    pairs = list(zip(ours, theirs))
    distances = [edit_distance(a, b) / max(len(a), len(b), 1) for a, b in pairs]
    return {
        "ours": len(ours), "theirs": len(theirs), "pairs": len(pairs),
        "exact": sum(a == b for a, b in pairs) / len(pairs) if pairs else None,
        "edit_distance": sum(distances) / len(pairs) if pairs else None,
    }


def edit_distance(a: str, b: str) -> int:
    """Fewest insertions, deletions and replacements of a character that make one text of the other."""
    row = list(range(len(b) + 1))
    for i, character in enumerate(a, 1):
        previous, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (character != other))
    return row[-1]
