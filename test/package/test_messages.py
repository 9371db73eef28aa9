"""The messages are exactly those of the contract: names, order, types and constants."""

import pytest

from oxygen_ros import instructions
from oxygen_ros.msg import ActionChunk, FrameStats, Instruction, LanguageToken

FIELDS = {
    ActionChunk: {
        "header": "std_msgs/Header",
        "sequence": "uint64",
        "instruction_id": "uint64",
        "step_dt": "builtin_interfaces/Duration",
        "names": "sequence<string>",
        "horizon": "uint32",
        "action_dim": "uint32",
        "data": "sequence<float>",
        "representation": "uint8",
        "start": "builtin_interfaces/Time",
        "latency": "builtin_interfaces/Duration",
    },
    Instruction: {"id": "uint64", "task": "uint8", "text": "string", "max_tokens": "uint32", "priority": "uint8"},
    LanguageToken: {
        "header": "std_msgs/Header",
        "request_id": "uint64",
        "task": "uint8",
        "index": "uint32",
        "token_id": "int32",
        "text": "string",
        "last": "boolean",
        "finish_reason": "uint8",
        "detail": "string",
    },
    FrameStats: {
        "sequence": "uint64",
        **dict.fromkeys(("period", "preprocess", "prefill", "denoise", "first_chunk_latency"), "double"),
        **dict.fromkeys(("decode", "total", "slack"), "double"),
        **dict.fromkeys(("decode_steps", "tokens", "active_requests", "waiting_requests"), "uint32"),
        **dict.fromkeys(("slots_used", "slots_total"), "uint32"),
        **dict.fromkeys(("deadline_misses", "stale_inputs"), "uint64"),
        **dict.fromkeys(("observation_age", "boundary_jump"), "double"),
        "committed_actions": "uint32",
        **dict.fromkeys(("clamped_actions", "slowed_actions", "masked_frames"), "uint64"),
    },
}

CONSTANTS = {
    ActionChunk: {"ABSOLUTE_POSITION": 0, "DELTA_POSITION": 1, "VELOCITY": 2, "END_EFFECTOR_DELTA": 3},
    Instruction: {"ACT": 0, "ASK": 1, "REMEMBER": 2, "CANCEL": 3, "STOP": 4},
    LanguageToken: {
        **{"ACT": 0, "ASK": 1, "REMEMBER": 2, "SUBTASK": 5},
        **{"NONE": 0, "END_OF_TEXT": 1, "LENGTH": 2, "CANCELLED": 3, "REJECTED": 4, "ERROR": 5},
    },
    FrameStats: {},
}


@pytest.mark.parametrize("message", FIELDS, ids=lambda message: message.__name__)
def test_fields(message):
    assert list(message.get_fields_and_field_types().items()) == list(FIELDS[message].items())


@pytest.mark.parametrize("message", CONSTANTS, ids=lambda message: message.__name__)
def test_constants(message):
    members = {name: getattr(message, name) for name in dir(message)}
    declared = {name: value for name, value in members.items() if name.isupper() and type(value) is int}
    assert declared == CONSTANTS[message]


def test_a_bare_instruction_is_a_control_task():
    assert Instruction(text="transfer the cube").task == Instruction.ACT


def test_instructions_without_ros_have_the_same_fields_and_constants():
    theirs = Instruction()
    ours = {name: getattr(instructions.Instruction(), name) for name in FIELDS[Instruction]}
    assert ours == {name: getattr(theirs, name) for name in FIELDS[Instruction]}
    assert {name: getattr(instructions, name) for name in CONSTANTS[Instruction]} == CONSTANTS[Instruction]
