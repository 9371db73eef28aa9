"""From an instruction to text: prompts, periods, prefixes and stop strings, on the embedded policy and without ROS."""

from pathlib import Path

import numpy as np
import pytest

from oxygen_ros.embodiment.prompt_writer import PromptWriter
from oxygen_ros.engine.outputs import FinishReason, Task, Token
from oxygen_ros.instructions import ACT, ASK, REMEMBER, Instruction, Instructions
from oxygen_ros.policy import load_policy
from oxygen_ros.settings import SettingsError, read
from oxygen_ros.speech import Speech

DEFAULT = Path(__file__).parents[1] / "resource" / "pi05_aloha_tiny"


class Robot:
    """A policy with its instructions and speech, and what was heard of them."""

    def __init__(self, **changes) -> None:
        language = {"language.temperature": 0.7, "language.max_tokens": 24, **changes}
        self.settings = read({
            "policy": str(DEFAULT), "cameras": ["cam_high"], "threads": 1, "seed": 5, "fixed_noise": True, **language,
        })
        self.policy = load_policy(self.settings)
        self.deltas, self.utterances, self.memories, self.tokens, self.complaints = {}, [], [], [], []
        self.infos, self.warnings = [], []
        self.speech = Speech(
            self.policy.pipeline.tokenizer, token=self._token, utterance=self.utterances.append,
            memory=lambda token, text: self.memories.append(text), stop=lambda: self.settings.language.stop,
        )
        self.instructions = Instructions(
            self.policy.pipeline, self.policy.engine, lambda: self.settings.language,
            lambda data: Instruction(id=int(data), task=ACT, text="wave"),
            reject=self.speech.refuse, complain=self.complaints.append, info=self.infos.append,
            warn=self.warnings.append, seed=5, halt=lambda instruction_id: None,
        )
        self.instructions.obey(Instruction(task=ACT, text="transfer the cube"))

    def _token(self, token: Token, delta: str) -> None:
        self.tokens.append(token)
        self.deltas.setdefault(token.request_id, []).append(delta)

    def frame(self, level=0.0):
        """One frame, all joints at this level in model units. Returns its statistics."""
        state = self.policy.robot.to_robot_state(np.full(14, level))
        pictures = {"cam_high": np.full((48, 64, 3), 90, np.uint8)}
        seen = self.policy.pipeline.observe(pictures, state, "transfer the cube")
        for output in self.policy.engine.frame(self.policy.observation(seen, 7)):
            if isinstance(output, Token):
                self.speech.hear(output)
                if output.last:
                    self.instructions.ended(output.request_id)
        return output

    def ask(self, level=0.0):
        self.instructions.obey(Instruction(id=50, task=ASK, text="where is the cube?"))
        stats = self.frame(level)
        return "".join(self.deltas[50]), stats


def test_an_answer_ends_at_a_stop_string_that_is_no_part_of_it():
    plain, _ = Robot().ask()
    at = next(i for i in range(4, len(plain)) if plain.find(plain[i : i + 3]) == i)
    robot = Robot(**{"language.stop": [plain[at : at + 3]]})
    text, stats = robot.ask()
    assert text == plain[:at] == robot.utterances[0]
    assert robot.tokens[-1].last and robot.tokens[-1].finish_reason is FinishReason.END_OF_TEXT
    assert stats.tokens < 24 and stats.slots_used == 0


def test_memories_and_subtasks_come_by_themselves_one_of_each_at_a_time():
    robot = Robot(**{"language.memory_period": 2.0, "language.subtask_period": 3.0, "language.max_tokens": 4})
    tasks = []
    for now in (100.0, 100.5, 102.0, 103.0, 104.0):
        robot.instructions.remind(now)
        robot.instructions.remind(now)
        robot.tokens.clear()
        robot.frame()
        tasks.append({t.task for t in robot.tokens if t.last})
    both = {Task.REMEMBER, Task.SUBTASK}
    assert tasks == [both, set(), {Task.REMEMBER}, {Task.SUBTASK}, {Task.REMEMBER}]
    assert len(robot.memories) == 3 and len(robot.utterances) == 2 and not robot.complaints


def test_nothing_is_reminded_of_while_the_last_is_still_being_said():
    robot = Robot(**{"language.memory_period": 1.0, "language.steps_per_frame": 1, "language.max_tokens": 3})
    ends = []
    for now in range(7):
        robot.instructions.remind(float(now))
        robot.tokens.clear()
        robot.frame()
        ends.append(sum(t.last for t in robot.tokens))
    assert ends == [0, 0, 1, 0, 0, 1, 0]


def test_no_periods_no_reminders():
    robot = Robot()
    robot.instructions.remind(1e9)
    assert robot.frame().tokens == 0


def test_a_prefix_of_its_own_costs_one_more_prefill():
    shared, shared_stats = Robot().ask()
    own, own_stats = Robot(**{"language.own_prefix": ["ask"]}).ask()
    pictures = 64
    question = len(Robot().policy.pipeline.language_prompt("ask", "where is the cube?"))
    assert own_stats.prefix_tokens == shared_stats.prefix_tokens + pictures + question + 1 and own != shared


def test_language_that_continues_the_task_text_does_not_read_the_state():
    """With causal text the part up to the task text is the same in every state, and so are answers from it."""


    def answers(**changes):
        return [Robot(text_attention="causal", **changes).ask(level)[0] for level in (0.0, 0.4)]

    low, high = answers(**{"language.shared_text": "task"})
    assert low == high
    low, high = answers()
    assert low != high


def test_a_megabyte_is_not_tokenised_while_others_wait(monkeypatch):
    robot = Robot(**{"language.subtask_period": 1.0})
    tokenizer, lengths = robot.policy.pipeline.tokenizer, []
    encode = tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda text: (lengths.append(len(text)), encode(text))[1])
    told = "put the cube into the box, " * 40_000
    state = np.full(14, 0.3)
    whole = PromptWriter(tokenizer, robot.policy.robot.prompt, robot.policy.pipeline.max_tokens).write(told, state)[0]
    lengths.clear()
    for task in (ASK, REMEMBER, ACT):
        robot.instructions.obey(Instruction(id=60 + task, task=task, text=told))
    assert [(t.request_id, t.finish_reason) for t in robot.tokens] == [
        (61, FinishReason.REJECTED), (62, FinishReason.REJECTED)]
    assert all("a text of 1080000 characters, one request has room for 192 tokens" in t.detail for t in robot.tokens)
    assert robot.warnings == ["instruction 60: of 1079999 characters only 25600 are read"]
    assert "(1079999 characters)" in robot.infos[-1]
    robot.instructions.remind(0.0)  # of subtasks, which quote the task
    # What is left out is no part of any prompt.
    writer = PromptWriter(tokenizer, robot.policy.robot.prompt, robot.policy.pipeline.max_tokens)
    assert writer.write(robot.instructions.task.text, state)[0] == whole and len(whole) > 190
    assert max(lengths) < 26_000


def test_a_deep_queue_that_is_heard_twice_is_obeyed_once():
    """By a latched publisher's other subscription, once that has found it: a task of before would come again."""
    robot = Robot()
    for _ in range(2):
        for number in range(1, 301):
            robot.instructions.hear(b"%d" % number, 1000 + number)
    assert robot.infos[1:] == [f"instruction {number}: wave" for number in range(1, 301)]
    assert robot.instructions.task.instruction_id == 300


def test_an_instruction_cannot_forge_a_line_of_the_log():
    robot = Robot()
    robot.instructions.obey(Instruction(id=9, text="wave\r[ERROR] all is lost\x1b[31m\u2028잠 🚀"))
    assert robot.infos[-1] == "instruction 9: wave\\r[ERROR] all is lost\\x1b[31m\\u2028잠 🚀"


def test_contradictions_are_said():
    with pytest.raises(SettingsError, match="language.shared_text is 'task', expected 'prompt'"):
        read({"policy": "x", "language.shared_text": "task"})
    with pytest.raises(SettingsError, match=r"own_prefix is \['sing'\], expected some of ask, remember, subtask"):
        read({"policy": "x", "language.own_prefix": ["sing"]})
