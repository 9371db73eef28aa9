"""What ROS reads of a command line, and what it cannot read, in one line."""

import pytest

from oxygen_ros.ros_arguments import RosArgumentsError, parameter_files, without_ros_arguments


def test_files_are_those_of_the_ros_half():
    arguments = ["node", "--params-file", "a", "--ros-args", "--params-file", "b", "-r", "x:=y", "--params-file", "c",
                 "--", "--params-file", "d", "--ros-args", "--params-file"]
    assert parameter_files(arguments) == ["b", "c"]


def test_what_ros_cannot_read_is_one_line(tmp_path):
    (tmp_path / "x.yaml").write_text("/**:\n\tros__parameters:\n\t\tx: 1\n")
    with pytest.raises(RosArgumentsError) as error:
        without_ros_arguments(["node", "--ros-args", "--params-file", str(tmp_path / "x.yaml")])
    assert "x.yaml" in str(error.value) and str(error.value).isprintable()
