"""F33: which norm_stats.json, and what is in it."""

import json
import shutil

import numpy as np
import pytest
from spoil import edit

from oxygen_ros.checkpoint.convert import convert
from oxygen_ros.checkpoint.errors import CheckpointError
from oxygen_ros.checkpoint.load import load
from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.normalization import Normalizer, Statistics


def state_q01(folder, **options):
    return load(folder, **options).statistics["state"]["q01"]


@pytest.fixture
def stats(openpi_folder):
    """The only statistics of the folder."""
    return openpi_folder / "assets" / "tiny" / "norm_stats.json"


def test_one_is_used_and_logged(openpi_folder, stats):
    content = json.loads(stats.read_text())["norm_stats"]
    checkpoint = load(openpi_folder)
    for feature in ("state", "actions"):
        for measure in ("mean", "std", "q01", "q99"):
            found = checkpoint.statistics[feature][measure]
            assert found.dtype == np.float64 and found.tolist() == content[feature][measure]
    assert f"statistics from {stats}" in checkpoint.notes


def another(stats, name, value):
    """A second asset beside the first, whose state q01 is `value` throughout."""
    path = stats.parents[1] / name / "norm_stats.json"
    path.parent.mkdir(parents=True)
    shutil.copyfile(stats, path)
    edit(path, lambda c: c["norm_stats"]["state"].update(q01=[value] * 5))


def test_several_need_a_choice(openpi_folder, stats):
    another(stats, "physical-intelligence/libero", -7.0)
    with pytest.raises(CheckpointError, match="physical-intelligence/libero, tiny; .*parameter asset_id"):
        load(openpi_folder)
    assert state_q01(openpi_folder, asset_id="physical-intelligence/libero").tolist() == [-7.0] * 5
    assert state_q01(openpi_folder, asset_id="tiny")[0] == pytest.approx(-1.5004369)
    with pytest.raises(CheckpointError, match="of physical-intelligence/libero, tiny, not of asset_id 'libero'"):
        load(openpi_folder, asset_id="libero")


def test_assets_beside_the_folder(openpi_folder, stats, tmp_path):
    """Where openpi's converter leaves them."""
    shutil.move(openpi_folder / "assets", tmp_path / "assets")
    assert state_q01(openpi_folder)[0] == pytest.approx(-1.5004369)
    assert state_q01(openpi_folder, asset_id="tiny")[0] == pytest.approx(-1.5004369)


def test_assets_inside_come_first(openpi_folder, stats, tmp_path):
    another(stats, "trossen", -7.0)
    shutil.move(openpi_folder / "assets" / "trossen", tmp_path / "assets" / "trossen")
    assert state_q01(openpi_folder)[0] == pytest.approx(-1.5004369)
    assert state_q01(openpi_folder, asset_id="trossen")[0] == -7.0


def test_assets_that_are_links(openpi_folder, stats, tmp_path):
    shutil.move(stats.parent, tmp_path / "shared")
    stats.parent.symlink_to(tmp_path / "shared")
    assert state_q01(openpi_folder, asset_id="tiny")[0] == pytest.approx(-1.5004369)


def test_other_folders_have_no_asset_id(lerobot_folder, openpi_folder, tmp_path):
    convert(load(openpi_folder), tmp_path / "ours")
    for folder, whose in ((lerobot_folder, "LeRobot's"), (tmp_path / "ours", "one of our own")):
        assert f"warning: asset_id 'tiny' is for openpi folders; this is {whose}" in load(folder, asset_id="tiny").notes


def test_none_lists_the_paths_looked_at(openpi_folder, tmp_path):
    shutil.rmtree(openpi_folder / "assets")
    with pytest.raises(CheckpointError) as error:
        load(openpi_folder)
    for path in (openpi_folder / "norm_stats.json", openpi_folder / "assets", tmp_path / "assets"):
        assert str(path) in str(error.value)


def test_identity_only_on_purpose(openpi_folder):
    shutil.rmtree(openpi_folder / "assets")
    checkpoint = load(openpi_folder, allow_identity_statistics=True)
    assert checkpoint.conventions.normalization == {"state": "identity", "actions": "identity"}
    assert [n for n in checkpoint.notes if n.startswith("warning: no statistics")]


def test_the_permission_changes_nothing_where_there_are_some(openpi_folder):
    assert load(openpi_folder, allow_identity_statistics=True).conventions == load(openpi_folder).conventions


def test_without_the_wrapper(openpi_folder, stats):
    content = json.loads(stats.read_text())
    stats.write_text(json.dumps(content["norm_stats"]))
    assert state_q01(openpi_folder).tolist() == content["norm_stats"]["state"]["q01"]


def test_further_measures_and_features_do_no_harm(openpi_folder, stats):
    edit(stats, lambda c: c["norm_stats"].update(depth={"mean": [1.0]}))
    edit(stats, lambda c: c["norm_stats"]["state"].update(count=12))
    assert set(load(openpi_folder).statistics["state"]) == {"mean", "std", "q01", "q99"}


@pytest.mark.parametrize("change, told", [
    (lambda s: s["norm_stats"]["state"].update(q01=[[1, 2], [3]]), "state: q01 is ragged"),
    (lambda s: s["norm_stats"]["state"].update(q99=[1, 2, 3]), "state: unequal lengths mean 5, std 5, q01 5, q99 3"),
    (lambda s: s["norm_stats"]["actions"].update(std=["a"] * 6), "actions: std is ragged or holds something else"),
    (lambda s: s["norm_stats"]["actions"].update(std=3.0), "actions: std has shape \\[\\]"),
    (lambda s: s["norm_stats"].pop("state"), "no statistics of state; it has actions"),
    (lambda s: s.update(norm_stats=[1]), "norm_stats is list"),
    (lambda s: s["norm_stats"]["actions"].update(q01=None), "actions have no q01, which rule openpi_quantile needs"),
])
def test_what_cannot_be_used_is_refused(openpi_folder, stats, change, told):
    edit(stats, change)
    with pytest.raises(CheckpointError, match=told):
        load(openpi_folder)


def test_no_json(openpi_folder, stats):
    stats.write_text("{")
    with pytest.raises(CheckpointError, match="norm_stats.json cannot be read as JSON"):
        load(openpi_folder)


@pytest.mark.parametrize("width", [6, 7, 32])
def test_width_against_a_robot_of_seven(openpi_folder, stats, width):
    def resize(content):
        content["norm_stats"]["state"] = {m: ([float(i + k) for i in range(7)] + [0.0] * 25)[:width]
                                          for k, m in enumerate(("mean", "std", "q01", "q99"))}

    edit(stats, resize)
    checkpoint = load(openpi_folder)
    arguments = checkpoint.conventions.normalization["state"], Statistics(**checkpoint.statistics["state"]), 7, "state"
    if width == 6:
        with pytest.raises(InputError, match="statistics of state: .*6 dimensions.*7"):
            Normalizer(*arguments)
    else:
        low = np.arange(7) + 2.0
        np.testing.assert_allclose(Normalizer(*arguments).normalize(low), -1, atol=1e-12)
