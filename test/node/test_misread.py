"""Whom a parameter file is for (F49) and what it gives, judged as ROS does."""

import pytest
import rclpy
from rclpy.context import Context
from rclpy.node import Node

from oxygen_ros.children import claim_domain
from oxygen_ros.parameter_file import misread

KEYS = ["/**", "'**'", "/oxygen", "oxygen", "/left/oxygen", "left/oxygen", "/*/oxygen", "/**/oxygen", "/left/*",
        "/left/**", "/*", "'*'", "/left", "vla", "/right/oxygen", "/left:\n  oxygen", "/left/oxygen/vla", "/oxygen_2"]


def given(file, name: str) -> bool:
    """Whether a real node of this full name gets the parameter of the file."""
    space, _, own = name.rpartition("/")
    context = Context()
    rclpy.init(args=["--ros-args", "--params-file", str(file), "-r", f"__ns:={space or '/'}"], context=context,
               domain_id=DOMAIN)
    node = Node(own, context=context, automatically_declare_parameters_from_overrides=True, enable_rosout=False,
                start_parameter_services=False)
    try:
        return node.has_parameter("x")
    finally:
        node.destroy_node()
        context.shutdown()


DOMAIN = claim_domain()


@pytest.mark.parametrize("name", ["/oxygen", "/left/oxygen"])
def test_a_file_that_ros_leaves_out_is_named(tmp_path, name):
    taken = []
    for number, key in enumerate(KEYS):
        file = tmp_path / f"{number}.yaml"
        indent = "    " if "\n" in key else "  "
        file.write_text(f"{key}:\n{indent}ros__parameters:\n{indent}  x: 1\n")
        lines = misread([str(file)], name)
        assert bool(lines) != given(file, name), key
        if not lines:
            taken.append(key)
        elif key in ("vla", "/left:\n  oxygen"):
            written = {"vla": "/vla"}.get(key, "/left/oxygen")
            assert f"{file} holds nothing for {name}, its keys are {written}; make one of them {name} or" in lines[0]
    assert 5 < len(taken) < len(KEYS) - 5


def test_a_file_for_many_nodes_is_for_this_one_too(tmp_path):
    file = tmp_path / "many.yaml"
    file.write_text("a: {ros__parameters: {x: 1}}\n"
                    "/left: {oxygen: {ros__parameters: {x: 1}}, b: {ros__parameters: {}}}")
    assert misread([str(file)], "/left/oxygen") == []
    assert "its keys are /a, /left/oxygen, /left/b" in misread([str(file)], "/oxygen")[0]
    file.write_text("# nothing")
    assert misread([str(file), str(tmp_path / "none.yaml")], "/oxygen") == []


def test_what_a_file_gives_twice_is_named(tmp_path):
    """ROS takes the last, or the one that is a number."""
    file = tmp_path / "twice.yaml"
    file.write_text("/**:\n  ros__parameters:\n    x: 1\n    a: {b: 2, c: 3}\n    x: one\n"
                    "/left/oxygen: {ros__parameters: {x: 2}}\n/**:\n  ros__parameters:\n    a.b: 4\n"
                    "/vla: {ros__parameters: {y: 1, y: 2}}\n")
    assert given(file, "/left/oxygen")
    x, b = misread([str(file)], "/left/oxygen")
    assert f"{file} gives x in lines 3 and 5, of which ROS took one" in x and "gives a.b in lines 4 and 9" in b
    assert len(misread([str(file)], "/vla")) == 3
