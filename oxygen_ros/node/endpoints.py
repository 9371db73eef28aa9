"""Publishers and subscriptions that come and go together, open to QoS overrides."""

from __future__ import annotations

import copy
import functools
import threading
from collections.abc import Callable, Iterable
from difflib import get_close_matches

from rclpy.callback_groups import CallbackGroup
from rclpy.clock import Clock
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.exceptions import InvalidTopicNameException
from rclpy.lifecycle import LifecycleNodeMixin, LifecyclePublisher
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rclpy.qos_overriding_options import QoSOverridingOptions
from rclpy.subscription import Subscription
from rclpy.timer import Timer

from ..embodiment.errors import on_one_line
from ..settings import SettingsError
from . import qos
from .reader import NotByExecutor, Reader
from .sampling import Sample, Wanted
from .throttle import Throttle

_PATIENCE = 1.0  # s
_OF_ROS = ("/clock", "/diagnostics", "/parameter_events", "/rosout")  # not of a session
_AT_TIMES = ("~/action_chunk", "~/joint_trajectory")  # by parameter
# The executor asks each event of each endpoint before each message, and `graph` tells the same, once a second.
_NO_PUBLISHER_EVENTS = PublisherEventCallbacks(use_default_callbacks=False)
_NO_SUBSCRIPTION_EVENTS = SubscriptionEventCallbacks(use_default_callbacks=False)


class Endpoints:
    """What one session has on the network. The node must not be destroyed before `close`."""

    def __init__(self, node: LifecycleNodeMixin, throttle: Throttle) -> None:
        self._node, self._throttle = node, throttle
        self.publishers: list[LifecyclePublisher] = []
        self.lasting: list[Publisher] = []
        self.subscriptions: list[Subscription] = []
        self._overridable: set[str] = set()  # names of parameters
        self._past_executor = NotByExecutor()
        self._sensors: dict[Subscription, Wanted] = {}
        self._reader: Reader | None = None
        self._timer: Timer | None = None

    def publisher(self, kind: type, topic: str, profile: QoSProfile, *, timing: bool = True) -> LifecyclePublisher:
        """timing: whether deadline and lifespan can be overridden. Raises SettingsError."""
        made = self._make(self._node.create_lifecycle_publisher, "publisher", kind, topic, profile,
                          qos.overridable(timing=timing), event_callbacks=_NO_PUBLISHER_EVENTS)
        self.publishers.append(made)
        return made

    def lasting_publisher(self, kind: type, topic: str, profile: QoSProfile) -> Publisher:
        """One that publishes in every state of the node. Raises SettingsError."""
        made = self._make(self._node.create_publisher, "publisher", kind, topic, profile, qos.overridable(),
                          event_callbacks=_NO_PUBLISHER_EVENTS)
        self.lasting.append(made)
        return made

    def subscription(self, kind: type, topic: str, callback: Callable, profile: QoSProfile, *,
                     entity: str | None = None, group: CallbackGroup | None = None) -> Subscription:
        """A subscription to serialised messages; its name after remaps is `topic_name`.

        entity: tells two subscriptions to one topic apart in `qos_overrides`. Raises SettingsError.
        """
        made = self._make(self._node.create_subscription, "subscription", kind, topic, profile, qos.overridable(entity),
                          self._guarded(topic, callback), raw=True, callback_group=group,
                          event_callbacks=_NO_SUBSCRIPTION_EVENTS)
        self.subscriptions.append(made)
        return made

    def sensor(self, kind: type, topic: str, callback: Callable[[Sample], None], profile: QoSProfile,
               wanted: Wanted) -> Subscription:
        """A subscription to serialised messages that come often: from `read` on, in a thread of their own.

        wanted: which of them are taken before the next tick; at a tick those are that the profile keeps.
        """
        made = self.subscription(kind, topic, callback, profile, group=self._past_executor)
        self._sensors[made] = wanted
        return made

    def read(self, broken: Callable[[Exception], None]) -> None:
        """Hear the sensors, of which there are no more to come. broken: is given what ends that, or `tick`."""
        self._reader = Reader(self._sensors, self._node.context, broken)

    def tick(self, period: float | None, callback: Callable[[], None], clock: Clock) -> None:
        """From now on call back every `period` seconds of this clock, in the sensors' thread; None: never."""
        before, self._timer = self._timer, None
        if period:
            self._timer = self._node.create_timer(period, callback, self._past_executor, clock)
        self._reader.tick_by(self._timer)
        if before is not None:
            self._node.destroy_timer(before)

    def look(self, sensor: Subscription | None = None) -> None:
        """Return when a sensor's messages of by now were heard, or those of all."""
        reader = self._reader  # `close` in another thread may take it away at any time
        if reader is not None:
            reader.look(sensor)

    def strange_overrides(self, given: Iterable[str]) -> list[str]:
        """A line for each of these qos_overrides that none of the endpoints takes."""
        at_times = (f"qos_overrides.{self._node.resolve_topic_name(topic)}." for topic in _AT_TIMES)
        not_now = [topic for topic in at_times if not any(name.startswith(topic) for name in self._overridable)]
        elsewhere, lines = (*(f"qos_overrides.{topic}." for topic in _OF_ROS), *not_now), []
        for name in sorted(set(given) - self._overridable):
            if name.startswith(elsewhere):
                continue
            close = get_close_matches(name, self._overridable, n=1, cutoff=0.5)
            lines.append(f"parameter {name} is about nothing of this node; did you mean {close[0]}?" if close else
                         f"parameter {name} is about nothing of this node")
        return lines

    def _make(self, create: Callable, entity: str, kind: type, topic: str, profile: QoSProfile,
              options: QoSOverridingOptions, *arguments, **further):
        made = make(create, kind, topic, *arguments, copy.copy(profile), qos_overriding_options=options, **further)
        self._overridable.update(qos.override_names(made.topic_name, entity, options))
        return made

    @property
    def all_publishers(self) -> list[Publisher]:
        return [*self.publishers, *self.lasting]

    def close(self) -> None:
        """Destroy them all, and return when they are gone."""
        if self._reader is not None:
            self._reader.stop()
            self._reader = None
        _between_callbacks(self._node, self._destroy)

    def _destroy(self) -> None:
        for subscription in self.subscriptions:
            self._node.destroy_subscription(subscription)
        for publisher in self.publishers:
            self._node.destroy_lifecycle_publisher(publisher)
        for publisher in self.lasting:
            self._node.destroy_publisher(publisher)
        self.subscriptions, self.publishers, self.lasting, self._sensors = [], [], [], {}

    def _guarded(self, topic: str, callback: Callable) -> Callable:
        """No message may end the executor, which serves everything else too."""

        @functools.wraps(callback)
        def run(*arguments) -> None:
            try:
                callback(*arguments)
            except Exception as error:
                if line := self._throttle(topic, f"message on {topic} dropped: {error!r}"):
                    self._node.get_logger().error(line)

        return run


def make(create: Callable, kind: type, topic: str, *arguments, **options):
    """A publisher or subscription from one of rclpy's `create_` methods. Raises SettingsError."""
    try:
        return create(kind, topic, *arguments, **options)
    except InvalidTopicNameException as error:
        raise SettingsError([f"topic '{topic}' is no valid topic name: {str(error).splitlines()[0]}"]) from error
    except (RuntimeError, AttributeError, TypeError, ValueError, AssertionError) as error:
        # Whatever rclpy makes of an override; or two endpoints of one name do not go together.
        reason = on_one_line(str(error).partition(", at ")[0]) or "a value of another type"
        what = f"topic '{topic}'" if reason.startswith("Failed to create") else f"qos_overrides of '{topic}'"
        raise SettingsError([f"{what} cannot be used: {reason}"]) from error


def _between_callbacks(node: Node, act: Callable[[], None]) -> None:
    """Run `act` once in the thread of the node's executor, where one spins.

    An executor that gathers what to wait for does not survive it (InvalidHandle) when another thread just then destroys
    an event handler, and every publisher and subscription has one.
    """
    started, done = threading.Lock(), threading.Event()

    def once() -> None:
        if started.acquire(blocking=False):
            try:
                act()
            finally:
                done.set()

    if node.executor is not None:
        node.executor.create_task(once)
        done.wait(_PATIENCE)
    once()  # nobody spins, or is too busy to
    done.wait()
