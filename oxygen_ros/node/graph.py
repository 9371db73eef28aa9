"""What the ROS graph says is wrong: publishers that can never be heard, and a second node of our name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible
from rclpy.subscription import Subscription
from rclpy.topic_endpoint_info import TopicEndpointInfo

PublishersOf = Callable[[str], Sequence[TopicEndpointInfo]]
"""`Node.get_publishers_info_by_topic`, which takes its time: callers may remember what it said."""


def twins(node: Node) -> list[str]:
    """A line if another node has this one's name: each then answers the other's services."""
    name = node.get_fully_qualified_name()
    same = [f"{space.rstrip('/')}/{own}" for own, space in node.get_node_names_and_namespaces()].count(name)
    if same < 2:
        return []
    return [f"{same} nodes are named {name}, and each answers the others' services; "
            "start them with -r __node:= or -r __ns:="]


def deaf(publishers_of: PublishersOf, subscriptions: Iterable[Subscription]) -> list[str]:
    """A line for each publisher that a subscription cannot hear, with topic and types or policies."""
    lines = []
    for subscription in subscriptions:
        ours = _type_name(subscription.msg_type)
        for publisher in publishers_of(subscription.topic_name):
            who = f"{subscription.topic_name}: not heard from {_who(publisher)}, which publishes"
            if publisher.topic_type != ours:
                lines.append(f"{who} {publisher.topic_type}, expected {ours}")
                continue
            if reason := _mismatch(publisher.qos_profile, subscription.qos_profile):
                lines.append(f"{who} with {_policies(publisher.qos_profile)}, this node asks for "
                             f"{_policies(subscription.qos_profile)} ({reason}); see qos_overrides")
    return lines


def unheard(node: Node, publishers: Iterable[Publisher]) -> list[str]:
    """A line for each subscription that cannot hear a publisher of ours, with topic and types or policies."""
    lines, me = [], node.get_fully_qualified_name()
    for publisher in publishers:
        topic, ours = publisher.topic_name, _type_name(publisher.msg_type)
        subscriptions = node.get_subscriptions_info_by_topic(topic)
        # As the network sees it: what a profile leaves open has a value there.
        offered = [p.qos_profile for p in node.get_publishers_info_by_topic(topic) if _who(p) == me and subscriptions]
        for subscription in subscriptions:
            who = f"{topic}: not heard by {_who(subscription)}, which expects"
            if subscription.topic_type != ours:
                lines.append(f"{who} {subscription.topic_type}, this node publishes {ours}")
                continue
            for profile in offered:
                if reason := _mismatch(profile, subscription.qos_profile):
                    lines.append(f"{who} {_policies(subscription.qos_profile)} ({reason}); see qos_overrides")
    return lines


def rivals(publishers_of: PublishersOf, topic: str, kind: type, means: str) -> list[str]:
    """A line if several nodes publish what is heard of a topic. means: what comes of it."""
    names = sorted({_who(p) for p in publishers_of(topic) if p.topic_type == _type_name(kind)})
    return [f"{topic}: {len(names)} publishers, {' and '.join(names)}; {means}"] if len(names) > 1 else []


def _mismatch(offered: QoSProfile, asked: QoSProfile) -> str | None:
    """Why a subscription does not hear a publisher; None where it does."""
    compatible, reason = qos_check_compatible(offered, asked)
    return reason.removeprefix("ERROR: ").rstrip(";") if compatible == QoSCompatibility.ERROR else None


def _who(endpoint: TopicEndpointInfo) -> str:
    return f"{endpoint.node_namespace.rstrip('/')}/{endpoint.node_name}"


def _policies(profile: QoSProfile) -> str:
    return f"{profile.reliability.name.lower()}, {profile.durability.name.lower()}"


def _type_name(kind: type) -> str:
    return f"{kind.__module__.partition('.')[0]}/msg/{kind.__name__}"
