"""The lifecycle node: what each transition does, and what it says when it fails."""

from __future__ import annotations

import functools
import gc
import inspect
import itertools
import threading
import traceback
from collections.abc import Callable, Sequence

from lifecycle_msgs.srv import ChangeState
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.lifecycle import LifecycleNodeMixin, LifecycleState, TransitionCallbackReturn
from rclpy.task import Future

from ..checkpoint.errors import CheckpointError
from ..embodiment.errors import InputError
from ..parameter_file import misread
from ..settings import SettingsError
from .diagnostics import Diagnostics
from .heap import give_back
from .parameters import EmptyListsAllowed, Parameters
from .session import Session
from .throttle import Throttle

_CLOSING = 0.5  # s; ~/transition_event tells that a transition is done before it has ended, and launch then asks on
_OWNERS_FAULT = (SettingsError, CheckpointError, InputError)


class Broken(Exception):
    """Something went wrong between transitions that nobody foresaw; `__cause__` is what it was."""


class Interrupted(Exception):
    """The process is to end; a long transition stops where it is."""


def _explained(transition: Callable) -> Callable:
    """Says why a transition failed.

    What the owner can mend is one line and FAILURE; anything else is a traceback and ERROR, from which `on_error`
    makes a clean unconfigured node. (rclpy itself swallows the exception.)
    """

    @functools.wraps(transition)
    def run(self: OxygenNode, state: LifecycleState) -> TransitionCallbackReturn:
        try:
            transition(self, state)
        except _OWNERS_FAULT as error:
            self.last_failure = f"{transition.__name__.removeprefix('on_')} failed: {error}"
            for line in getattr(error, "problems", (str(error),)):
                self.get_logger().error(f"{self.get_fully_qualified_name()}: {line}")
            return TransitionCallbackReturn.FAILURE
        except Interrupted:
            self.get_logger().info(f"{transition.__name__.removeprefix('on_')} given up: the process is to end")
            return TransitionCallbackReturn.FAILURE
        except Broken as error:
            self.last_failure = f"no longer active: {error}"
            self.get_logger().error(f"{self.last_failure}\n{''.join(traceback.format_exception(error.__cause__))}")
            return TransitionCallbackReturn.ERROR
        except Exception as error:
            self.last_failure = f"{transition.__name__.removeprefix('on_')} failed: {error!r}"
            self.get_logger().error(f"{self.last_failure}\n{traceback.format_exc()}")
            return TransitionCallbackReturn.ERROR
        return TransitionCallbackReturn.SUCCESS

    return run


class OxygenNode(LifecycleNodeMixin, EmptyListsAllowed):
    """Cameras, joints and instructions in; action chunks and language out.

    configure loads and warms up the policy, activate starts the control timer, deactivate ends after the frame in
    flight, cleanup frees everything.
    """

    def __init__(self, name: str = "oxygen", *, parameter_files: Sequence[str] = (), **options) -> None:
        """parameter_files: those of the command line, which ROS itself has read."""
        EmptyListsAllowed.__init__(self, name, automatically_declare_parameters_from_overrides=True, **options)
        # Reentrant, so that get_state answers while a transition takes its time.
        LifecycleNodeMixin.__init__(self, callback_group=ReentrantCallbackGroup())
        self._transition = self._service_change_state.callback
        self._service_change_state.callback = self._change_state
        self._in_transition = threading.Lock()
        self.session: Session | None = None
        self.active = False
        self._broken: Broken | None = None
        self.last_failure = ""
        self._numbers = itertools.count(1)  # who has heard 7 may take another 7 for the same
        self.interrupted = threading.Event()
        self._throttle = Throttle()
        self._misread = misread(parameter_files, self.get_fully_qualified_name())
        self.settings_parameters = Parameters(self)
        self.add_post_set_parameters_callback(lambda _: self._take_live_settings())
        self._diagnostics = Diagnostics(self)
        for service in self.services:
            if not inspect.iscoroutinefunction(service.callback):
                service.callback = self._guarded(service.callback)

    def _guarded(self, answer: Callable) -> Callable:
        """No request may end the executor, which serves everything else too: there are some that rclpy chokes on."""

        @functools.wraps(answer)
        def run(request, response):
            try:
                return answer(request, response)
            except Exception as error:
                if line := self._throttle("services", f"{type(request).__name__} not answered as asked: {error!r}"):
                    self.get_logger().error(line)
                return response

        return run

    async def _change_state(self, request: ChangeState.Request, response: ChangeState.Response) -> ChangeState.Response:
        """A transition in a thread of its own, so that everything else goes on being answered meanwhile.

        (rclpy's executor with several threads would do that too, but it spins, and starves the frame thread of Python.)
        """
        done = Future(executor=self.executor)

        def run() -> None:
            try:
                if self._in_transition.acquire(timeout=_CLOSING):
                    try:
                        self._transition(request, response)
                    finally:
                        self._in_transition.release()  # before the answer: who has it may ask for the next one
                else:
                    self.get_logger().error("transition refused: another one is under way")
                    response.success = False
            finally:
                done.set_result(response)
                self.executor.wake()

        threading.Thread(target=run, name="transition", daemon=True).start()
        return await done

    def complain(self, error: Exception) -> None:
        """Of what a callback raised: one of rclpy's own, such as for a time before 1970 on /clock."""
        where = " > ".join(frame.name for frame in traceback.extract_tb(error.__traceback__)[-3:])
        if line := self._throttle("executor", f"a message or request was dropped: {error!r} in {where}"):
            self.get_logger().error(line)

    def give_up(self, cause: Exception) -> None:
        """From active through on_error to a clean unconfigured node. Returns before that is done.

        (rcl knows no error of the active state itself, only of a transition out of it.)
        """
        self._broken = Broken(f"frames ended with {cause!r}; configure and activate again")
        self._broken.__cause__ = cause

        def run() -> None:
            with self._in_transition:
                if self.active:
                    self.trigger_deactivate()

        threading.Thread(target=run, name="transition", daemon=True).start()

    def shut_down(self) -> None:
        """The lifecycle's own end, after a transition that is under way: running requests get their last token."""
        with self._in_transition:
            if self._state_machine.current_state[1] != "finalized":
                self.trigger_shutdown()

    @_explained
    def on_configure(self, state: LifecycleState) -> None:
        problems, self._misread = self._misread, []
        parameters = self.settings_parameters
        settings = parameters.read()
        if not settings.policy:
            name = self.get_fully_qualified_name()
            problems.append(f"parameter policy is empty: give {name} a parameter file whose top key is {name} or /**")
        if problems:
            raise SettingsError(problems)
        with parameters.held():
            self.session = Session(self, settings, parameters.qos_overrides(), self._reading, self.give_up,
                                   self._numbers)
            parameters.lock(self.session.policy.robot)
        self.last_failure = ""
        policy = self.session.policy
        self.get_logger().info(
            f"configured: {policy.robot.name} on {policy.folder} at {settings.control_rate:g} Hz"
            + ("" if policy.trained else "; its weights are RANDOM, its actions mean nothing")
        )

    @_explained
    def on_activate(self, state: LifecycleState) -> None:
        self._broken = None
        LifecycleNodeMixin.on_activate(self, state)
        self.session.activate()
        self.active = True

    @_explained
    def on_deactivate(self, state: LifecycleState) -> None:
        self.active = False
        if self._broken is not None:
            raise self._broken
        self.session.deactivate()
        LifecycleNodeMixin.on_deactivate(self, state)

    @_explained
    def on_cleanup(self, state: LifecycleState) -> None:
        self._close()

    @_explained
    def on_shutdown(self, state: LifecycleState) -> None:
        self._close()

    @_explained
    def on_error(self, state: LifecycleState) -> None:
        self._close()

    def _close(self) -> None:
        self.active = False
        self._broken = None  # its traceback holds on to the session
        session, self.session = self.session, None
        self.settings_parameters.lock(None)
        if session is not None:
            session.close()
            del session
            gc.collect()  # its parts know each other, and the next configure needs the memory of this one's network
            give_back()

    def _take_live_settings(self) -> None:
        session = self.session  # a transition in another thread may take it away at any time
        if session is not None:
            session.use(self.settings_parameters.read())

    def _reading(self, done: int, total: int) -> None:
        if self.interrupted.is_set():
            raise Interrupted
        line = self._throttle("policy", f"weights: {done} of {total} parameters read")
        if line and done > 1:  # what takes less than a period is not worth a line
            self.get_logger().info(line)
