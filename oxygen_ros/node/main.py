"""`oxygen-node`: the process around the node."""

from __future__ import annotations

import os
import signal
import sys
import threading

from ..command_line import CommandLine
from .heap import limit_arenas

_ARENAS = 2  # of the heap; frames and transitions rarely allocate at the same moment
_STOP = (signal.SIGINT, signal.SIGTERM)
_WAKE = 1.0  # s; there are builds of Fast DDS that wait until a time of day, which may be set back meanwhile
_PATIENCE = 10.0  # s; a frame or a weight file in flight takes less, a hung device may take for ever


def main(arguments: list[str] | None = None) -> int:
    # Signals are waited for by this thread alone: a handler would interrupt Python wherever it is, and rclpy's own
    # would take the topics away before the last tokens are out. Every thread started from here inherits the mask.
    # It comes before the imports, which take seconds: a process told to end while they run ends the same way.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    limit_arenas(_ARENAS)
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.signals import SignalHandlerOptions

    from ..ros_arguments import RosArgumentsError, parameter_files, starting, without_ros_arguments
    from ..settings import SettingsError
    from .oxygen_node import OxygenNode
    from .spinner import Spinner

    arguments = sys.argv if arguments is None else ["oxygen-node", *arguments]
    try:
        CommandLine(
            prog="oxygen-node",
            description="The lifecycle node oxygen: cameras, joints and instructions in, action chunks and language "
            "out. Parameters, remaps and names come as for any ROS 2 node: --ros-args --params-file FILE ...",
        ).parse_args(without_ros_arguments(arguments)[1:])
        with starting():
            rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
            node = OxygenNode(parameter_files=parameter_files(arguments))
    except (RosArgumentsError, SettingsError) as error:
        print(f"oxygen-node: {error}", file=sys.stderr)
        return 1
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spinner = Spinner(executor, failed=lambda: os.kill(os.getpid(), signal.SIGTERM), dropped=node.complain)

    while signal.sigtimedwait(_STOP, _WAKE) is None:
        executor.wake()
    _give_up_after(_PATIENCE)
    node.interrupted.set()
    node.shut_down()
    spinner.stop()
    node.destroy_node()
    rclpy.shutdown()
    return 0


def _give_up_after(seconds: float) -> None:
    def give_up() -> None:
        print(f"oxygen-node: still busy {seconds:g} s after it was told to stop; ending it", file=sys.stderr)
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main())
