"""The quality of service of every topic, in one place.

A subscriber that requests a deadline never matches a publisher that offers none: publishers offer, subscriptions
do not request. Every endpoint can be overridden with the usual `qos_overrides` parameters.
"""

from __future__ import annotations

from rclpy.duration import Duration
from rclpy.qos import DurabilityPolicy, QoSPolicyKind, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions

# rclpy writes an override into the profile that it is given: `endpoints` hands it copies.
_OVERRIDABLE = (QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.RELIABILITY, QoSPolicyKind.DURABILITY)
_TIMING = (QoSPolicyKind.DEADLINE, QoSPolicyKind.LIFESPAN)


def _reliable(depth: int, durability: DurabilityPolicy = DurabilityPolicy.VOLATILE) -> QoSProfile:
    return QoSProfile(depth=depth, reliability=ReliabilityPolicy.RELIABLE, durability=durability)


SENSOR = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
JOINTS = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)  # the newest part of a robot hides no other
INSTRUCTION = _reliable(10)
INSTRUCTION_LATCHED = _reliable(10, DurabilityPolicy.TRANSIENT_LOCAL)
LANGUAGE_TOKENS = _reliable(1000)
UTTERANCE = _reliable(10, DurabilityPolicy.TRANSIENT_LOCAL)
MEMORY = _reliable(100, DurabilityPolicy.TRANSIENT_LOCAL)
FRAME_STATS = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
PREDICTED_PATH = _reliable(1)
DIAGNOSTICS = _reliable(10)
BOND, BONDS = _reliable(5), _reliable(1000)  # one node's heartbeats, and all of them between two


def action_chunk(deadline: float, lifespan: float) -> QoSProfile:
    """deadline and lifespan in seconds; 0 leaves them unlimited."""
    profile = _reliable(1)
    if deadline:
        profile.deadline = Duration(seconds=deadline)
    if lifespan:
        profile.lifespan = Duration(seconds=lifespan)
    return profile


def override_names(topic: str, entity: str, options: QoSOverridingOptions) -> list[str]:
    """The parameters that override the profile of an endpoint. entity: publisher or subscription."""
    suffix = f"_{options.entity_id}" if options.entity_id else ""
    kinds = [kind for kind in options.policy_kinds if (kind, entity) != (QoSPolicyKind.LIFESPAN, "subscription")]
    return [f"qos_overrides.{topic}.{entity}{suffix}.{kind.name.lower()}" for kind in kinds]


def overridable(entity_id: str | None = None, *, timing: bool = True) -> QoSOverridingOptions:
    """timing: deadline and lifespan too; not where parameters of the node's own say them."""
    return QoSOverridingOptions(_OVERRIDABLE + (_TIMING if timing else ()), entity_id=entity_id)
