"""What the tests of evaluations share: reports of bags, and what they are made of."""

from bags import BAG, beginning, typestore

from oxygen_ros.replay.bag import Recorded, open_bag
from oxygen_ros.replay.evaluate import evaluate
from oxygen_ros.replay.rollout import Part
from oxygen_ros.replay.sources import Names

SECONDS = 0.6
HIGH = "/cam_high/image_raw/compressed"
TYPES = {name: topic.type for name, topic in open_bag(BAG).topics.items()}
TASK = Part(instruction="transfer the cube")
STORE = typestore()


def report(path, side, part=Part(), names=Names()) -> dict:
    return evaluate(str(path), [side], names, part).result


def said(result: dict) -> dict:
    """What does not depend on the machine."""
    side = result["sides"]["oxygen"]
    frames = [{k: f[k] for k in ("tick_ns", "used", "chunk", "normalised_mae", "start_ns")} for f in side["frames"]]
    return {key: side[key] for key in ("accuracy", "motion", "instructions")} | {"frames": frames}


def instruction(text: str, received_ns: int, kind: str = "oxygen_ros/msg/Instruction", topic: str = "/instruction",
                task: int = 0) -> Recorded:
    if kind == "std_msgs/msg/String":
        message = STORE.types[kind](data=text)
    else:
        message = STORE.types[kind](id=0, task=task, text=text, max_tokens=4, priority=0)
    return Recorded(topic, received_ns, bytes(STORE.serialize_cdr(message, kind)))


def without(*topics: str):
    return beginning(SECONDS, lambda m: None if m.topic in topics else m)


def start() -> int:
    return open_bag(BAG).start_ns
