import pytest

from oxygen_ros.parameter_file import load_settings
from oxygen_ros.settings import SettingsError


@pytest.mark.parametrize(
    "text, word",
    [
        ("", "found 0"),
        ("[]", "found 0"),
        ("/**: 3", "found 0"),
        ("/**: {ros__parameters: }", "found 1"),
        ("a: {ros__parameters: {}}\nb: {ros__parameters: {}}", "found 2"),
        ("a: [1, 2\nb: 3", "x.yaml cannot be read: line 2: expected ',' or ']', but got ':'$"),
        ("/**:\n  ros__parameters:\n    seed: 1\n    language.stop: []\n    seed: 2\n    language: {stop: [x]}",
         "x.yaml gives seed in lines 3 and 5; leave one.*gives language.stop in lines 4 and 6"),
        ("/**: {ros__parameters: &a {x: *a}}", "x.yaml cannot be read: "),
        ("a: \x01", "x.yaml cannot be read: unacceptable character"),
        ("\x89MCAP0", "x.yaml cannot be read: 'utf-8' codec"),
    ],
)
def test_a_file_of_something_else(tmp_path, text, word):
    (tmp_path / "x.yaml").write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError, match=word) as error:
        load_settings(tmp_path / "x.yaml")
    assert "\n" not in str(error.value)
    with pytest.raises(SettingsError, match="none.yaml cannot be read: No such file or directory"):
        load_settings(tmp_path / "none.yaml")
