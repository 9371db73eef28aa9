"""F31: statistics that are there are applied, and never silently not."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from spoil import assert_as_recorded, edit, step, weights, write

from oxygen_ros.checkpoint.errors import CheckpointError
from oxygen_ros.checkpoint.load import load
from oxygen_ros.embodiment.normalization import Normalizer, Statistics

STATE_FILES = ("policy_preprocessor_step_3_normalizer_processor.safetensors",
               "policy_postprocessor_step_0_unnormalizer_processor.safetensors")


def rename(folder, change, files=STATE_FILES):
    """change(name) -> the names, none or several, under which the state files hold it from now on."""
    for file in files:
        values = load_file(folder / file)
        save_file({new: value for name, value in values.items() for new in change(name)}, folder / file)


def warnings(checkpoint):
    return [note for note in checkpoint.notes if note.startswith("warning")]


def test_the_state_files_are_read(lerobot_folder):
    stored = load_file(lerobot_folder / STATE_FILES[0])
    statistics = load(lerobot_folder).statistics
    for ours, theirs in (("state", "observation.state"), ("actions", "action")):
        for measure in ("mean", "std", "q01", "q99"):
            np.testing.assert_array_equal(statistics[ours][measure], stored[f"{theirs}.{measure}"].astype(np.float64))


def test_each_file_is_read_for_its_own_feature(lerobot_folder):
    """The un-normaliser's state file counts for actions, whatever the normaliser's says of them."""
    values = load_file(lerobot_folder / STATE_FILES[1])
    moved = {name: v + 5 if name.startswith("action") else v + 100 for name, v in values.items()}
    save_file(moved, lerobot_folder / STATE_FILES[1])
    before = load_file(lerobot_folder / STATE_FILES[0])
    statistics = load(lerobot_folder).statistics
    np.testing.assert_array_equal(statistics["state"]["q01"], before["observation.state.q01"])
    np.testing.assert_array_equal(statistics["actions"]["q01"], before["action.q01"] + 5)


def test_the_step_number_is_read_not_assumed(lerobot_folder):
    (lerobot_folder / STATE_FILES[0]).rename(lerobot_folder / "elsewhere.safetensors")
    edit(lerobot_folder / "policy_preprocessor.json",
         lambda c: step(c, "normalizer_processor").update(state_file="elsewhere.safetensors"))
    assert_as_recorded(lerobot_folder)
    assert load(lerobot_folder).statistics["state"]["q01"][0] == pytest.approx(-1.5004369)


@pytest.mark.parametrize("prefix", ["so100.buffer.", "so100.buffer_", "dataset_7."])
def test_one_prefix_is_seen_through_and_said(lerobot_folder, prefix):
    plain = load(lerobot_folder).statistics
    rename(lerobot_folder, lambda name: [prefix + name])
    checkpoint = load(lerobot_folder)
    np.testing.assert_array_equal(checkpoint.statistics["actions"]["q99"], plain["actions"]["q99"])
    np.testing.assert_array_equal(checkpoint.statistics["state"]["q01"], plain["state"]["q01"])
    told = warnings(checkpoint)
    assert len(told) == 2
    assert f"statistics of action are taken from {prefix}action in" in told[1]


def test_the_features_own_name_needs_no_guess(lerobot_folder):
    rename(lerobot_folder, lambda name: [name, f"so100.buffer.{name}", f"so101.buffer.{name}"])
    assert not warnings(load(lerobot_folder))


def test_three_prefixes_are_refused_and_listed(lerobot_folder):
    rename(lerobot_folder, lambda name: [f"{robot}.buffer.{name}" for robot in ("so100", "so100-blue", "so100-red")])
    with pytest.raises(CheckpointError) as error:
        load(lerobot_folder)
    listed = "so100-blue.buffer.observation.state, so100-red.buffer.observation.state, so100.buffer.observation.state"
    assert listed in str(error.value)
    with pytest.raises(CheckpointError):  # several are no reason to pass numbers through either
        load(lerobot_folder, allow_identity_statistics=True)


def test_an_observed_action_is_not_the_action(lerobot_folder):
    rename(lerobot_folder, lambda name: [name.replace("action.", "observation.last_action.")])
    with pytest.raises(CheckpointError, match="no normalisation statistics of action in"):
        load(lerobot_folder)


def into_the_weights(folder, names):
    """Statistics as old LeRobot kept them: buffers among the weights, no processor files."""
    stored = load_file(folder / STATE_FILES[0])
    buffers = {
        f"{owner}.buffer_{feature.replace('.', '_')}.{measure}": torch.from_numpy(stored[f"{feature}.{measure}"].copy())
        for owner, feature in names for measure in ("mean", "std", "q01", "q99")
    }
    write(folder, weights(folder) | buffers, prefix="model.")
    for file in (*STATE_FILES, "policy_preprocessor.json", "policy_postprocessor.json"):
        (folder / file).unlink()


def test_buffers_in_the_weights(lerobot_folder):
    plain = load(lerobot_folder).statistics
    into_the_weights(lerobot_folder, [
        ("normalize_inputs", "observation.state"), ("normalize_targets", "action"), ("unnormalize_outputs", "action"),
    ])
    checkpoint = load(lerobot_folder)
    assert checkpoint.layout == "lerobot"
    for ours in ("state", "actions"):
        np.testing.assert_array_equal(checkpoint.statistics[ours]["q01"], plain[ours]["q01"])
    told = warnings(checkpoint)
    assert len(told) == 2 and "unnormalize_outputs.buffer_action in the weights (an old LeRobot folder)" in told[1]


def test_buffers_of_targets_alone(lerobot_folder):
    into_the_weights(lerobot_folder, [("normalize_inputs", "observation.state"), ("normalize_targets", "action")])
    assert "normalize_targets.buffer_action" in warnings(load(lerobot_folder))[1]


@pytest.mark.parametrize("kept, lost", [("action", "observation.state"), ("observation.state", "action")])
def test_one_feature_without_statistics(lerobot_folder, kept, lost):
    rename(lerobot_folder, lambda name: [name] if name.startswith(kept) else [])
    with pytest.raises(CheckpointError, match=f"no normalisation statistics of {lost} .*{kept}.max.*identity_stat"):
        load(lerobot_folder)


def test_none_at_all(lerobot_folder):
    for file in (*STATE_FILES, "policy_preprocessor.json", "policy_postprocessor.json"):
        (lerobot_folder / file).unlink()
    with pytest.raises(CheckpointError, match="policy_preprocessor.json's state file .* buffers have nothing"):
        load(lerobot_folder)
    checkpoint = load(lerobot_folder, allow_identity_statistics=True)
    assert checkpoint.conventions.normalization == {"state": "identity", "actions": "identity"}
    assert len(warnings(checkpoint)) >= 1


def test_a_missing_state_file_is_a_broken_copy(lerobot_folder):
    (lerobot_folder / STATE_FILES[0]).unlink()
    with pytest.raises(CheckpointError, match=f"names {STATE_FILES[0]}, which is missing"):
        load(lerobot_folder, allow_identity_statistics=True)


def modes(folder, **chosen):
    """Both descriptions of the normalisation mode, as LeRobot writes them."""
    edit(folder / "config.json", lambda c: c["normalization_mapping"].update(chosen))
    for file, name in (("policy_preprocessor.json", "normalizer_processor"),
                       ("policy_postprocessor.json", "unnormalizer_processor")):
        edit(folder / file, lambda c: step(c, name)["config"]["norm_map"].update(chosen))


def normalizer(checkpoint, feature, width):
    return Normalizer(
        checkpoint.conventions.normalization[feature], Statistics(**checkpoint.statistics[feature]), width, feature
    )


def test_the_mapping_is_obeyed(lerobot_folder):
    modes(lerobot_folder, STATE="MEAN_STD", ACTION="MIN_MAX")
    stored = load_file(lerobot_folder / STATE_FILES[1])
    checkpoint = load(lerobot_folder)
    assert checkpoint.conventions.normalization == {"state": "lerobot_mean_std", "actions": "lerobot_quantiles"}
    mean, std = stored["observation.state.mean"].astype(float), stored["observation.state.std"].astype(float)
    np.testing.assert_allclose(normalizer(checkpoint, "state", 5).normalize(mean + std), 1, atol=1e-6)
    low, high = stored["action.min"].astype(float), stored["action.max"].astype(float)
    actions = normalizer(checkpoint, "actions", 6)
    np.testing.assert_allclose(actions.unnormalize(np.full(6, -1.0)), low, atol=1e-12)
    np.testing.assert_allclose(actions.unnormalize(np.full(6, 1.0)), high, atol=1e-12)
    assert not warnings(checkpoint)


def test_identity_needs_no_statistics(lerobot_folder):
    modes(lerobot_folder, STATE="IDENTITY", ACTION="IDENTITY")
    rename(lerobot_folder, lambda name: [] if "action" in name else [name])
    checkpoint = load(lerobot_folder)
    assert checkpoint.conventions.normalization == {"state": "identity", "actions": "identity"}
    np.testing.assert_array_equal(normalizer(checkpoint, "state", 5).normalize(np.arange(5.0)), np.arange(5.0))


def test_the_processor_files_win_over_the_config_and_it_is_said(lerobot_folder):
    edit(lerobot_folder / "config.json", lambda c: c["normalization_mapping"].update(STATE="MEAN_STD"))
    checkpoint = load(lerobot_folder)
    assert checkpoint.conventions.normalization["state"] == "lerobot_quantiles"
    assert "config.json normalises STATE by MEAN_STD, the processor files by QUANTILES" in warnings(checkpoint)[0]


def test_an_unknown_mode(lerobot_folder):
    modes(lerobot_folder, ACTION="SIGMOID")
    with pytest.raises(CheckpointError, match="normalisation of ACTION is 'SIGMOID'; known: QUANTILES, QUANTILE10"):
        load(lerobot_folder)


def test_a_mode_whose_measures_are_not_there(lerobot_folder):
    rename(lerobot_folder, lambda name: [] if name.endswith(("q01", "q99")) else [name])
    with pytest.raises(CheckpointError, match="statistics of state have no q01 and q99, which rule lerobot_quantiles"):
        load(lerobot_folder)
