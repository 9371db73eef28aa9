import numpy as np
import pytest

from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.prompt import (
    Prompt, clean_text, encode_prompt, state_bins, subtask_text, surround, task_text)
from oxygen_ros.embodiment.prompt_writer import PromptWriter

STATE = np.array([-2.0, -1.0, 0.0, 0.9921875, 5.0])


def build_prompt(form: str, task: str, state: np.ndarray) -> Prompt:
    return surround(form, task_text(form, task), state)


def test_recorded_bins_and_texts(recorded):
    tensors, texts = recorded["tensors"], recorded["texts"]
    states = tensors["lerobot_state_normalized"]
    assert np.array_equal(state_bins(states), tensors["lerobot_state_bins"])
    for task, state, with_state, plain in zip(
        texts["tasks"], states, texts["prompt_with_state"], texts["prompt_without_state_pieces"], strict=True
    ):
        assert build_prompt("state", task, state).pieces() == [with_state]
        assert build_prompt("plain", task, state).pieces() == plain


def test_bins_at_their_edges():
    assert state_bins(STATE).tolist() == [-1, 0, 128, 255, 255]
    edges = -1 + np.arange(256) / 128
    assert state_bins(edges).tolist() == list(range(256))
    assert state_bins(np.nextafter(edges, -2)).tolist() == list(range(-1, 255))


def test_subtask_forms():
    task = " Clean_the\nTable! "
    assert build_prompt("subtask", task, STATE).pieces() == ["Task: clean the table. Subtask: "]
    assert build_prompt("subtask_state", task, STATE).pieces() == [
        "Task: clean the table.; State: -1 0 128 255 255; Subtask: "
    ]
    assert subtask_text("stack it") == "stack it."


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "___", "\x00", "\u200b"])
@pytest.mark.parametrize("form", ["state", "plain", "subtask", "subtask_state"])
def test_blank_text_is_refused_as_empty(form, text):
    with pytest.raises(InputError, match="empty"):
        build_prompt(form, text, STATE)


def test_text_that_is_not_utf_8_still_is_text(tokenizer):
    assert clean_text("stop \udc80\udc81 now") == "stop \ufffd\ufffd now"
    assert clean_text("go \ufffd\x00 on") == "go \ufffd\x00 on"
    ids = encode_prompt(tokenizer, build_prompt("plain", "go \udc80\x00 on", STATE))
    assert tokenizer.decode(ids) == "go \ufffd\x00 on\n"


def length(tokenizer, form, task):
    return len(encode_prompt(tokenizer, build_prompt(form, task, STATE)))


def words_up_to(tokenizer, tokens):
    """A task text whose whole prompt with state has exactly this many tokens."""
    return "z" * (1 + tokens - length(tokenizer, "state", "z"))  # the training text lacks it: one byte piece each


@pytest.mark.parametrize("tokens", [199, 200])
def test_what_fits_is_left_alone(tokenizer, tokens):
    ids, warning = PromptWriter(tokenizer, "state", 200).write(words_up_to(tokenizer, tokens), STATE)
    assert (len(ids), warning, ids[0]) == (tokens, None, tokenizer.bos)


@pytest.mark.parametrize(
    "make",
    [lambda t: words_up_to(t, 201), lambda t: "pick up the red block and then " * 173, lambda t: "\U0001f680" * 2000],
)
@pytest.mark.parametrize(
    "form, tail", [("state", ", State: -1 0 128 255 255;\nAction: "), ("plain", "\n"), ("subtask", " Subtask: ")]
)
def test_only_the_task_text_is_shortened(tokenizer, make, form, tail):
    prompt = build_prompt(form, make(tokenizer), STATE)
    whole = len(encode_prompt(tokenizer, prompt))
    limit = min(200, whole - 1)  # the forms without state need less
    ids, warning = PromptWriter(tokenizer, form, limit).write(make(tokenizer), STATE)
    assert len(ids) <= limit
    assert f"{whole} tokens" in warning and f"{len(ids)} tokens" in warning
    text = tokenizer.decode(ids)
    assert text.startswith(prompt.before) and text.endswith(tail)
    kept = text[len(prompt.before) : -len(tail)]
    assert prompt.task.startswith(kept) and len(kept) > 30
    longer = Prompt(prompt.before, prompt.task[: len(kept) + 2].rstrip(), prompt.after, prompt.then)
    assert len(encode_prompt(tokenizer, longer)) > limit


def test_no_space_is_left_before_the_tail(tokenizer):
    limit = length(tokenizer, "state", "zzz z") - 1
    ids, _ = PromptWriter(tokenizer, "state", limit).write("zzz zzzz", STATE)
    assert tokenizer.decode(ids).startswith("Task: zzz, State: ")


def test_no_room_for_any_task_is_refused(tokenizer):
    with pytest.raises(InputError, match="at most 10"):
        PromptWriter(tokenizer, "state", 10).write("go", STATE)


def test_a_shortened_text_does_not_grow_again_with_the_next_state(tokenizer):
    narrow, wide = np.full(5, -2.0), np.full(5, 0.9)
    task = "pick up the red block and then " * 50
    writer = PromptWriter(tokenizer, "state", 80)
    texts = [tokenizer.decode(writer.write(task, state)[0]).split(", State")[0] for state in (narrow, wide, narrow)]
    assert len(texts[0]) > len(texts[1]) == len(texts[2]) > 30
    assert tokenizer.decode(writer.write("go", wide)[0]).startswith("Task: go, State: 243")
    assert tokenizer.decode(writer.write(task, narrow)[0]).startswith(texts[0])


def test_a_text_that_fits_beside_some_states_only_is_whole_beside_those(tokenizer):
    narrow, wide = np.full(5, -1.0), np.full(5, 0.9)
    task = "pick up the red block and then put it down"
    whole = encode_prompt(tokenizer, build_prompt("state", task, narrow))
    writer = PromptWriter(tokenizer, "state", len(whole))
    assert writer.write(task, narrow) == (whole, None)
    shortened, warning = writer.write(task, wide)
    assert len(shortened) <= len(whole) and "shortened" in warning
    assert writer.write(task, narrow) == (whole, None)


def test_a_text_of_100_kb_is_read_through_once_for_all_its_frames(tokenizer):
    read = []

    class Counting:
        bos = tokenizer.bos

        def encode(self, text):
            read.append(len(text))
            return tokenizer.encode(text)

    writer, task = PromptWriter(Counting(), "state", 200), "pick up the red block and then " * 3300
    generator = np.random.default_rng(0)
    writer.write(task, generator.uniform(-1, 1, 14))
    assert sum(read) < 3 * len(task)
    for _ in range(20):
        writer.write(task, generator.uniform(-1, 1, 14))
    read.clear()
    ids, warning = writer.write(task, np.zeros(14))
    assert len(ids) <= 200 and "102299" in warning and sum(read) < 2000
