"""Who is served first, who waits, and that nobody waits for ever."""

import time

import pytest
import torch

from oxygen_ros.engine.engine import Engine, EngineSettings
from oxygen_ros.engine.kv_pool import KVPool
from oxygen_ros.engine.outputs import Actions, FinishReason, Task, Token
from oxygen_ros.engine.request import LanguageRequest, RequestError
from oxygen_ros.engine.scheduler import Scheduler
from oxygen_ros.engine.step_cost import StepCost


def ask(number, task=Task.ASK, prompt=(5,), max_tokens=6, **options):
    return LanguageRequest(number, tuple(prompt), max_tokens, task, **{"end_tokens": (), **options})


def pool_for(model, slots, requests=8):
    return KVPool(model.config, slots=slots, requests=requests, cameras=3, max_tail=24, device=model.device,
                  dtype=model.dtype)


def ids(requests):
    return [r.request_id for r in requests]


def test_subtask_before_conversation_before_memory_and_priority_among_equals(model):
    scheduler = Scheduler(pool_for(model, 4), max_waiting=9, ageing=10.0, clock=lambda: 50.0)
    for request in (ask(1, Task.REMEMBER, since=50), ask(2, since=50), ask(3, Task.SUBTASK, since=50),
                    ask(4, since=50), ask(5, priority=9, since=50)):
        scheduler.submit(request)
    assert ids(scheduler.admit()) == [3, 5, 2, 4, 1]


@pytest.mark.parametrize(("since", "first"), [(41, 2), (39, 1)])
def test_a_memory_of_ten_seconds_is_as_urgent_as_a_new_question(model, since, first):
    scheduler = Scheduler(pool_for(model, 4, requests=1), max_waiting=9, ageing=10.0, clock=lambda: 50.0)
    for request in (ask(1, Task.REMEMBER, since=since), ask(2, since=50)):
        scheduler.submit(request)
    assert ids(scheduler.admit()) == [first]


def test_slots_for_prefixes_of_their_own(model):
    """Four slots: one is the actions' own, one the frame's if anybody shares it, and each own prefix takes another."""

    def admitted(*prefixes):
        scheduler = Scheduler(pool_for(model, 4), max_waiting=9, ageing=0.0)
        for number, prefix in enumerate(prefixes):
            scheduler.submit(ask(number, prefix=prefix))
        return len(scheduler.admit())

    assert admitted("own", "own", "own", "own") == 3
    assert admitted("shared", "shared", "own", "own", "own") == 4
    assert admitted("own", "own", "own", "shared") == 3  # nobody overtakes whom there is no room for


def test_requests_that_no_slot_could_hold(model):
    scheduler = Scheduler(pool_for(model, 4), max_waiting=9, ageing=0.0)
    with pytest.raises(RequestError, match="17 prompt tokens are too many for a prefix of 16"):
        scheduler.submit(ask(1, prompt=range(4, 21), prefix="own"))
    scheduler.submit(ask(1, prompt=range(4, 20), max_tokens=24, prefix="own"))  # its prompt takes none of the tail
    with pytest.raises(RequestError, match="needs a prompt"):
        ask(2, prompt=(), prefix="own")
    with pytest.raises(RequestError, match="top_p is 0"):
        ask(2, top_p=0.0)


class Known(StepCost):
    """A machine whose steps take a second a row."""

    def learn(self, rows, seconds):
        pass

    def doubt(self):
        pass

    def estimate(self, rows):
        return float(rows)


def engine_for(model, **changes):
    return Engine(model, EngineSettings(**{"denoise_steps": 2, "slots": 6, "max_language_tokens": 24, **changes}))


def heard(outputs):
    return [o.request_id for o in outputs if isinstance(o, Token)]


def test_where_time_is_short_the_most_urgent_go_on(model, observe):
    engine = engine_for(model, steps_per_frame=1)
    for request in (ask(1, Task.REMEMBER), ask(2, Task.SUBTASK), ask(3)):
        engine.submit(request)
    list(engine.frame(observe(0)))  # all have joined and said one token: a row each
    engine._cost = Known()
    assert heard(engine.frame(observe(1), time.monotonic() + 2.5)) == [2, 3]
    assert heard(engine.frame(observe(2), time.monotonic() + 1.5)) == [2]
    assert heard(engine.frame(observe(3), time.monotonic() + 0.5)) == []
    assert heard(engine.frame(observe(4))) == [2, 3, 1]


def test_language_gets_a_step_now_and_then_though_every_frame_is_late(model, observe):
    engine = engine_for(model, patience=3)
    engine.submit(ask(1, max_tokens=2))
    late = time.monotonic() - 1.0
    outputs = [list(engine.frame(observe(index), late)) for index in range(9)]
    assert [len(heard(o)) for o in outputs] == [0, 0, 0, 1, 0, 0, 0, 1, 0]
    assert all(isinstance(o[0], Actions) for o in outputs)  # and never before the chunk
    assert outputs[-1][-1].slots_used == 0


def test_one_slow_step_does_not_end_all_others(model, observe):
    engine = engine_for(model, patience=10**9, steps_per_frame=1)
    engine.submit(ask(1))
    list(engine.frame(observe(0)))
    engine._cost.learn(1, 60.0)
    taken = [len(heard(engine.frame(observe(index % 9), time.monotonic() + 10.0))) for index in range(60)]
    assert taken[0] == 0 and 1 in taken


def test_a_prefix_of_its_own_waits_for_time_and_keeps_its_turn(model, observe):
    engine = engine_for(model, patience=2)
    engine.submit(ask(1, prefix="own", max_tokens=1))
    late = time.monotonic() - 1.0
    frames = [list(engine.frame(observe(index), late)) for index in range(3)]
    assert [f[-1].waiting_requests for f in frames] == [1, 1, 0]
    assert [f[-1].slots_used for f in frames] == [0, 0, 0]
    assert heard(frames[2]) == [1]  # its patience was at an end: prefilled from this frame, and decoded
    assert frames[2][-1].prefix_tokens == 2 * (2 * 4) + len(observe(2).tokens) + 1


def test_a_prefix_of_its_own_that_fails_ends_itself(model, observe, monkeypatch):
    engine = engine_for(model)
    engine.submit(ask(1, prefix="own"))
    monkeypatch.setattr(engine._passes, "prefill_own", lambda *_: (_ for _ in ()).throw(torch.OutOfMemoryError("full")))
    outputs = []
    with pytest.raises(RuntimeError, match="prefill failed: full"):
        for output in engine.frame(observe(0)):
            outputs.append(output)
    assert isinstance(outputs[0], Actions)
    assert [(o.request_id, o.finish_reason) for o in outputs[1:]] == [(1, FinishReason.ERROR)]
    assert list(engine.frame(observe(1)))[-1].slots_used == 0


def test_cancel_while_it_waits_for_time(model, observe):
    engine = engine_for(model)
    engine.submit(ask(1, prefix="own"))
    late = time.monotonic() - 1.0
    list(engine.frame(observe(0), late))
    assert engine.cancel(1)
    tokens = [o for o in engine.frame(observe(1), late) if isinstance(o, Token)]
    assert [(t.request_id, t.finish_reason) for t in tokens] == [(1, FinishReason.CANCELLED)]
    assert list(engine.frame(observe(2)))[-1].waiting_requests == 0
