"""./run: what CMD finds, and that it is CMD itself that signals reach."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command, **environment):
    return subprocess.run(
        [ROOT / "run", *command], cwd="/", env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )


def test_modules_come_from_the_source_and_messages_from_the_build():
    code = "import oxygen_ros, oxygen_ros.commands as c, oxygen_ros.msg as m; print(c.__file__, m.__file__)"
    commands, messages = run("python", "-c", code).stdout.split()
    assert Path(commands) == ROOT / "oxygen_ros" / "commands.py"
    assert Path(messages).is_relative_to(ROOT / ".venv" / "colcon" / "install")


def test_a_ros_sourced_in_the_shell_is_left_out_and_the_rest_is_kept():
    environment = run(
        "env",
        AMENT_PREFIX_PATH="/opt/ros/jazzy:/home/me/ws/install",
        PYTHONPATH="/opt/ros/jazzy/lib/python3.12/site-packages:/home/me/lib:/home/me/ws/install/lib/python3.12",
        LD_LIBRARY_PATH="/opt/ros/jazzy/lib:/usr/local/cuda/lib64",
        ROS_DOMAIN_ID="42",
    ).stdout.splitlines()
    variables = dict(line.partition("=")[::2] for line in environment)
    install, venv = ROOT / ".venv" / "colcon" / "install", ROOT / ".venv"
    assert variables["AMENT_PREFIX_PATH"] == f"{install}:{venv}"
    assert variables["ROS_DOMAIN_ID"] == "42"
    assert "jazzy" not in variables["PYTHONPATH"] + variables["LD_LIBRARY_PATH"]
    assert "/ws/" not in variables["PYTHONPATH"]
    assert variables["PYTHONPATH"].endswith(":/home/me/lib")
    assert variables["LD_LIBRARY_PATH"].endswith(":/usr/local/cuda/lib64")


def test_within_itself_it_changes_nothing_more():
    once, twice = run("env").stdout, run(str(ROOT / "run"), "env").stdout
    paths = ("PYTHONPATH=", "LD_LIBRARY_PATH=", "AMENT_PREFIX_PATH=")
    assert [line for line in once.splitlines() if line.startswith(paths)] == [
        line for line in twice.splitlines() if line.startswith(paths)
    ]


def test_signals_and_exit_codes_are_the_commands_own():
    assert run("bash", "-c", "exit 7").returncode == 7
    with subprocess.Popen([ROOT / "run", "sleep", "30"]) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5) == -signal.SIGTERM


def test_without_a_set_up_it_says_what_to_do(tmp_path):
    shutil.copy(ROOT / "run", tmp_path)
    result = subprocess.run([tmp_path / "run", "true"], capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr == f"./run: {tmp_path} is not set up (or was moved since): run make setup\n"
