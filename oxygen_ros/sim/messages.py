"""The simulated robot's messages, made without ROS: `rosbags` knows the common types, msg/ holds ours."""
from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from . import robot


def load_types() -> Typestore:
    """ROS 2 Kilted's types and `oxygen_ros/msg/Instruction`.

    Raises FileNotFoundError where neither a source tree nor a built workspace holds its definition.
    """
    types = get_typestore(Stores.ROS2_KILTED)
    definition = _definitions() / "Instruction.msg"
    types.register(get_types_from_msg(definition.read_text(), "oxygen_ros/msg/Instruction"))
    return types


def _definitions() -> Path:
    source = Path(__file__).parents[2] / "msg"
    if source.is_dir():
        return source
    try:
        from ament_index_python import get_package_share_directory  # only a built workspace has it

        return Path(get_package_share_directory("oxygen_ros")) / "msg"
    except (ImportError, LookupError):
        raise FileNotFoundError(f"the definitions of oxygen_ros/msg are neither in {source} nor in a sourced "
                                "workspace: run from a source tree, or build the package with colcon and source it"
                                ) from None


class Composer:
    """Composes messages. Stamps are nanoseconds since 1970; positions and velocities are [14], in robot units."""

    def __init__(self, types: Typestore, jpeg_quality: int):
        self._types = types.types
        self._quality = jpeg_quality

    def image(self, stamp: int, camera: str, pixels: np.ndarray) -> object:
        """A [height, width, 3] uint8 RGB picture as compressed_image_transport sends it."""
        jpeg = io.BytesIO()
        Image.fromarray(pixels).save(jpeg, "JPEG", quality=self._quality, optimize=True)
        return self._types["sensor_msgs/msg/CompressedImage"](
            header=self._header(stamp, f"{camera}_optical_frame"),
            format="rgb8; jpeg compressed bgr8",  # the pixels' encoding at the source; the one the codec was given
            data=np.frombuffer(jpeg.getvalue(), np.uint8),
        )

    def joints(self, stamp: int, positions: np.ndarray, velocities: np.ndarray | None = None) -> object:
        """Joint states; without velocities, joint commands. The robot measures no effort."""
        nothing = np.empty(0)
        return self._types["sensor_msgs/msg/JointState"](
            header=self._header(stamp, robot.BASE_FRAME),
            name=list(robot.JOINTS),
            position=positions,
            velocity=nothing if velocities is None else velocities,
            effort=nothing,
        )

    def instruction(self, text: str) -> object:
        """A control task for the robot; the node that hears it numbers it."""
        instruction = self._types["oxygen_ros/msg/Instruction"]
        return instruction(id=0, task=instruction.ACT, text=text, max_tokens=0, priority=0)

    def text(self, text: str) -> object:
        return self._types["std_msgs/msg/String"](data=text)

    def _header(self, stamp: int, frame: str) -> object:
        seconds, nanoseconds = divmod(stamp, 1_000_000_000)
        time = self._types["builtin_interfaces/msg/Time"](sec=seconds, nanosec=nanoseconds)
        return self._types["std_msgs/msg/Header"](stamp=time, frame_id=frame)
