"""`oxygen-node`: the process around the node."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import remove_ros_args

from .oxygen_node import OxygenNode

_STOP = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 10.0  # s; a frame or a weight file in flight takes less, a hung device may take for ever


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv if arguments is None else ["oxygen-node", *arguments]
    argparse.ArgumentParser(
        prog="oxygen-node",
        description="The lifecycle node oxygen: cameras, joints and instructions in, action chunks and language out. "
        "Parameters, remaps and names come as for any ROS 2 node: --ros-args --params-file FILE -r __ns:=/left ...",
    ).parse_args(remove_ros_args(arguments)[1:])
    # Signals are waited for by this thread alone: a handler would interrupt Python wherever it is, and rclpy's own
    # would take the topics away before the last tokens are out. Every thread started from here inherits the mask.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP)
    rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    node = OxygenNode()
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    spinning = threading.Thread(target=_spin, args=(executor,), name="executor", daemon=True)
    spinning.start()

    signal.sigwait(_STOP)
    _give_up_after(_PATIENCE)
    node.interrupted.set()
    node.wait_for_transition()
    executor.shutdown()
    spinning.join()
    node.trigger_shutdown()  # the lifecycle's own end, so that running requests get their last token
    node.destroy_node()
    rclpy.shutdown()
    return 0


def _spin(executor: SingleThreadedExecutor) -> None:
    try:
        executor.spin()
    except Exception:
        os.kill(os.getpid(), signal.SIGTERM)
        raise


def _give_up_after(seconds: float) -> None:
    def give_up() -> None:
        print(f"oxygen-node: still busy {seconds:g} s after it was told to stop; ending it", file=sys.stderr)
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    sys.exit(main())
