"""The engine, mode by mode and mask by mask, gives what LeRobot, openpi and OxyGen recorded."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from oxygen_ros.checkpoint.load import load
from oxygen_ros.engine.baselines import MODES
from oxygen_ros.engine.engine import EngineSettings
from oxygen_ros.engine.observation import Observation
from oxygen_ros.engine.outputs import Actions, Token
from oxygen_ros.engine.request import LanguageRequest

REFERENCE = Path(__file__).parents[1] / "reference" / "pi05_tiny_a"
INPUTS = load_file(REFERENCE / "inputs.safetensors")
EXPECTED = {
    "bidirectional": load_file(REFERENCE / "expected.safetensors"),
    "causal": load_file(REFERENCE / "expected_causal_text.safetensors"),
}
WAYS = {"": {}, "padded": {"padded": True}, "fixed shapes": {"fixed_shapes": True}}


@pytest.fixture(scope="module")
def model():
    return load(REFERENCE).model()


def engine_for(mode, model, text_attention, **settings):
    return MODES[mode](model, EngineSettings(text_attention=text_attention, max_language_tokens=32, **settings))


def observation(sample, **changes):
    images = INPUTS["images"][sample][INPUTS["image_masks"][sample]]
    tokens = INPUTS["tokens"][sample][INPUTS["token_mask"][sample]]
    return Observation(images, **{"tokens": tokens, "noise": INPUTS["noise"][sample], **changes})


def frame(engine, seen, *requests):
    for request in requests:
        engine.submit(request)
    outputs = list(engine.frame(seen))
    said = {request.request_id: [] for request in requests}
    for token in (o for o in outputs if isinstance(o, Token)):
        said[token.request_id].append(token.token_id)
    return next(o.actions for o in outputs if isinstance(o, Actions)), said


def request(number, prompt=(), prefix="shared"):
    return LanguageRequest(number, tuple(prompt), 8, end_tokens=(), prefix=prefix)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("sample", [0, 1])
@pytest.mark.parametrize("text_attention", EXPECTED)
@pytest.mark.parametrize("mode", MODES)
def test_actions_and_text(model, mode, text_attention, sample, way):
    engine = engine_for(mode, model, text_attention, **way)
    actions, said = frame(engine, observation(sample), request(1))
    expected = EXPECTED[text_attention]
    torch.testing.assert_close(actions, expected["actions"][sample], atol=3e-5, rtol=0)
    assert said[1] == expected["lang_tokens"][sample].tolist()


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("mode", MODES)
def test_causal_text_may_go_on_differently_for_actions_and_for_language(model, mode, way):
    """Language continues the common text as if the actions' tail were not there; the actions see both."""
    whole = observation(0).tokens
    common = whole[:-3]
    engine = engine_for(mode, model, "causal")
    expected = frame(engine, observation(0, tokens=common), request(1), request(2, (7, 9)))[1]
    actions, said = frame(
        engine_for(mode, model, "causal", **way), observation(0, shared_tokens=len(common)),
        request(1), request(2, (7, 9)),
    )
    assert said == expected and said[1] != EXPECTED["causal"]["lang_tokens"][0].tolist()
    torch.testing.assert_close(actions, EXPECTED["causal"]["actions"][0], atol=3e-5, rtol=0)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text_attention", EXPECTED)
def test_a_prefix_of_its_own_is_bidirectional_whatever_the_frames_is(model, mode, way, text_attention):
    """Pictures of the frame with the recorded prompt, while the frame's own prompt is another."""
    prompt = observation(0).tokens.tolist()
    engine = engine_for(mode, model, text_attention, **way)
    other = observation(0, tokens=torch.tensor([2, 40, 41]))
    actions, said = frame(engine, other, request(1, prompt, "own"), request(2, (7, 9)))
    assert said[1] == EXPECTED["bidirectional"]["lang_tokens"][0].tolist()
    without, alone = frame(engine_for(mode, model, text_attention), other, request(2, (7, 9)))
    assert said[2] == alone[2]
    torch.testing.assert_close(actions, without, atol=1e-5, rtol=0)
