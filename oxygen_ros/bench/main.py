"""`oxygen-bench`: engine modes side by side on one machine, in one run."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from .. import machine
from ..command_line import CommandLine, whole
from ..engine.baselines import MODES
from ..engine.engine import EngineSettings, FrameError
from ..pi05.config import PRESETS
from ..pi05.model import Pi05
from ..pi05.random_weights import random_model
from . import beside, endurance, probes, report
from .breakdown import Laboratory, breakdown, limits
from .energy import meter
from .side_by_side import Contestant, run
from .sweep import draw, sweep
from .workload import ARRIVALS, BURST, CAMERAS, WORKLOADS, arrivals

HORIZON = 10
"""Actions per chunk, as in the OxyGen study."""
SETTLED = 2
"""Frames after which a mode is steady that carries no request from one frame to the next."""
PAPER_SHARE, PAPER_ALIVE = 0.78, 30
"""The paper's balance: isolated execution decodes for 78 % of its frame; its best point has 30 requests alive."""


class BenchError(Exception):
    """The benchmark cannot run; the message says why in one line."""


def main(argv: Sequence[str] | None = None) -> int:
    args = _arguments(argv)
    try:
        if args.json:  # a place that cannot be written is better known before than after the measurements
            args.json.parent.mkdir(parents=True, exist_ok=True)
            args.json.open("a").close()
        if args.node:
            from . import node_cost  # needs ROS, which the rest does not
            described, stopped = machine.describe(torch.device("cpu")), False
            result = {"machine": described, "node": node_cost.measure(args.seconds)}
            print(node_cost.table(result["node"]))
        else:
            result, stopped = _bench(args)
            print(report.table(result))
        if args.json:
            args.json.write_text(json.dumps(result, indent=2) + "\n")
    except KeyboardInterrupt:
        return 130
    except (BenchError, FrameError, OSError) as error:
        print(f"oxygen-bench: {error}", file=sys.stderr)
        return 1
    return 130 if stopped else 0


def _bench(args: argparse.Namespace) -> tuple[dict, bool]:
    """The result as interfaces.md has it, and whether Ctrl-C ended it early."""
    device = _device(args.device)
    if args.threads:
        torch.set_num_threads(args.threads)
    dtype = getattr(torch, args.dtype)
    config = PRESETS[args.model].with_horizon(HORIZON)
    workload = WORKLOADS[args.workload]
    described = machine.describe(device)
    if machine.busy(described):
        _say("other processes want the CPU too: with more than one thread, times and ratios mean little")
    _say(f"{args.model}: random weights in {args.dtype} on {device}")
    model = _model(config, dtype, device, args.seed)
    described["matmul_flops"] = probes.matmul_flops(device, dtype)
    described["bandwidth_bytes_per_s"] = probes.bandwidth(device, dtype)
    observation = next(workload.observations(config, args.seed))
    tokens, per_frame = args.decode_tokens, args.steps_per_frame
    if tokens is None:
        tokens, per_frame = _paper_balance(Laboratory(model, observation, args.denoise_steps, 1))
        _say(f"isolated execution decodes {PAPER_SHARE:.0%} of its frame at N = {tokens}; {per_frame} steps a frame")
    alive = math.ceil(tokens / per_frame)

    result = {
        "machine": described,
        "model": args.model,
        "workload": args.workload,
        "settings": {
            "device": str(device), "dtype": args.dtype, "horizon": HORIZON, "denoise_steps": args.denoise_steps,
            "decode_tokens": tokens, "steps_per_frame": per_frame, "arrival": args.arrival, "padded": args.padded,
            "frames": args.frames, "warmup": _warmup(args, alive), "seed": args.seed, "energy": meter(device)[0],
        },
        "modes": {},
        "breakdown": {},
        "roofline": {},
    }
    try:
        if args.frames:
            _run_modes(args, model, args.modes, tokens, per_frame, result["modes"])
        if args.sweep:
            result["sweep"] = sweep(
                lambda names, length, steps: _run_modes(args, model, names, length, steps, {}),
                args.modes, tokens or 30, _say,
            )
            for file in draw(result, args.sweep):
                _say(f"drawn: {file}")
        frames = workload.observations(config, args.seed)
        if args.beside:
            result["beside"] = beside.measure(model, frames, args.denoise_steps, args.beside, args.frames)
        if args.endurance:
            result["endurance"] = endurance.run(
                model, frames, denoise_steps=args.denoise_steps, tokens=tokens, steps_per_frame=per_frame,
                requests=max(2, alive), minutes=args.endurance, say=_say,
            )
        if args.breakdown or args.roofline:
            lab = Laboratory(model, observation, args.denoise_steps, alive)
        if args.breakdown:
            for name, item in breakdown(lab):
                _say(f"measured: {name}")
                result["breakdown"][name] = item
        if args.roofline:
            rates = probes.matmul_flops(device, dtype), probes.bandwidth(device, dtype)
            result["roofline"] = dict(zip(("matmul_flops", "bandwidth_bytes_per_s"), rates)) | dict(limits(lab, *rates))
    except KeyboardInterrupt:
        _say("stopped; this is what was measured until then")
        return result, True
    return result, False


def _run_modes(args: argparse.Namespace, model: Pi05, names: Sequence[str], tokens: int, per_frame: int, modes: dict
               ) -> dict:
    """Fill `modes` with the numbers of each mode, also when Ctrl-C ends the run; returns it."""
    joules, alive = meter(model.device)[1], math.ceil(tokens / per_frame)
    warmup = _warmup(args, alive)
    # Uneven arrivals pile up: room for twice what is alive on average, and two bursts at once.
    requests = max(1, alive + 1 if args.arrival == "uniform" else 2 * (alive + BURST))
    contestants = {}
    for name in names:
        contestants[name] = Contestant(MODES[name](model, EngineSettings(
            denoise_steps=args.denoise_steps,
            cameras=CAMERAS,
            slots=requests + 2 if name == "oxygen" else 3,
            max_requests=requests,
            max_waiting=1_000_000,
            max_language_tokens=max(2, 2 * tokens),
            steps_per_frame=per_frame,
            seed=args.seed,
            padded=args.padded,
            fixed_shapes=False if args.eager else None,
        )), joules, warmup if name == "oxygen" else min(warmup, SETTLED))
    try:
        for done in run(
            list(contestants.values()),
            WORKLOADS[args.workload].observations(model.config, args.seed),
            arrivals(args.arrival, tokens, args.seed),
            warmup=warmup,
            frames=args.frames,
        ):
            _progress(done, warmup, args.frames)
    finally:
        _say("")
        records = {name: contestant.record for name, contestant in contestants.items()}
        modes |= report.modes(records, HORIZON, steady=args.arrival == "uniform")
    return modes


def _warmup(args: argparse.Namespace, alive: int) -> int:
    """Frames until as many requests are alive as ever will be."""
    return alive + 2 if args.warmup is None else args.warmup


def _paper_balance(lab: Laboratory) -> tuple[int, int]:
    """Tokens at which isolated execution has the paper's balance, and steps per frame for its best point."""
    prefill, denoise, step = (
        probes.seconds(work, lab.device) for work in (lab.prefill, lab.denoise, lambda: lab.decode(1))
    )
    tokens = PAPER_SHARE / (1 - PAPER_SHARE) * (2 * prefill + denoise) / step
    per_frame = max(1, round(tokens / PAPER_ALIVE))
    return per_frame * PAPER_ALIVE, per_frame


def _model(config, dtype: torch.dtype, device: torch.device, seed: int) -> Pi05:
    model = random_model(config, seed)
    for name, parameter in model.named_parameters():
        parameter.data = parameter.data.to(device, model.precision_of(name, dtype))
    model.pack()
    return model


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BenchError(f"--device {name} cannot be used: {str(error).splitlines()[0]}; cpu always can") from None
    return device


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _progress(done: int, warmup: int, frames: int) -> None:
    phase = f"warm-up {done}/{warmup}" if done <= warmup else f"frame {done - warmup}/{frames}"
    print(f"\r{phase:<24}", end="", file=sys.stderr, flush=True)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = CommandLine(
        prog="oxygen-bench",
        description="Engine modes side by side: one new observation and, on average, one new language request a "
        "frame. Weights are random: only time, memory and energy mean something.",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers there")

    what = parser.add_argument_group("what is compared")
    what.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), metavar="MODE",
                      help="isolated_sequential: each task prefills the frame for itself, one after the other; "
                      "isolated_parallel: the same, side by side; shared_kv: one prefill for all, answers are decoded "
                      "to their end within the frame; oxygen: one prefill, all answers a few steps a frame "
                      "(default: all)")
    what.add_argument("--model", choices=PRESETS, default="mid", help="pi05: the released size, 3.4 billion "
                      "parameters; mid: 92 million; tiny: 2.2 million (default: %(default)s)")
    what.add_argument("--workload", choices=WORKLOADS, default="libero", help="whose cameras and prompt length: "
                      + ", ".join(f"{name} has {w.cameras} cameras and {w.prompt_tokens} tokens"
                                  for name, w in WORKLOADS.items()) + " (default: %(default)s)")
    what.add_argument("--denoise-steps", type=whole(1), default=10, metavar="N",
                      help="Euler steps of a chunk (default: %(default)s)")
    what.add_argument("--decode-tokens", type=_tokens, default=30, metavar="N",
                      help="of each answer; 0: actions only; paper: as many as make isolated execution decode for "
                      "78 %% of its frame, and as many steps per frame as keep 30 requests alive "
                      "(default: %(default)s)")
    what.add_argument("--steps-per-frame", type=whole(1), default=5, metavar="N",
                      help="decode steps of mode oxygen (default: %(default)s)")
    what.add_argument("--arrival", choices=ARRIVALS, default="uniform", help="how requests come, one a frame on "
                      "average: one each; several, then none; at random; of random lengths (default: %(default)s)")
    what.add_argument("--padded", action="store_true",
                      help="compute missing cameras and prompt padding too, masked, as other libraries do")
    what.add_argument("--frames", type=whole(0), default=20, metavar="N",
                      help="measured frames per mode; 0: none (default: %(default)s)")
    what.add_argument("--warmup", type=whole(0), metavar="N", help="frames before (default: until batching is steady)")
    what.add_argument("--seed", type=int, default=0, help="of weights, pictures and arrivals (default: %(default)s)")

    where = parser.add_argument_group("what it is computed on")
    where.add_argument("--device", default="cpu", help="as torch names it, such as cuda:0 (default: %(default)s)")
    where.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32",
                       help="of the weights (default: %(default)s)")
    where.add_argument("--threads", type=whole(1), metavar="N", help="of the CPU (default: torch's own choice)")
    where.add_argument("--eager", action="store_true", help="on a GPU: no CUDA graphs")

    more = parser.add_argument_group("further measurements")
    more.add_argument("--breakdown", action="store_true", help="time what is saved, beside the plain way of it")
    more.add_argument("--roofline", action="store_true",
                      help="how near each pass is to what the machine's arithmetic and bandwidth allow")
    more.add_argument("--sweep", type=Path, metavar="DIR", help="every mode at several decode lengths, and mode "
                      "oxygen at several steps per frame: draws the paper's figures there as PNG")
    more.add_argument("--beside", type=whole(0), default=0, metavar="N",
                      help="what N live requests do to the time of the first chunk")
    more.add_argument("--endurance", type=float, default=0.0, metavar="MINUTES",
                      help="so many minutes at a full pool, and how memory grew")

    node = parser.add_argument_group("instead of all that")
    node.add_argument("--node", action="store_true", help="what the ROS node costs beside its engine, with "
                      "three raw 640x480 cameras at 30 Hz, and who waits for it while inference takes 2 s")
    node.add_argument("--seconds", type=float, default=10.0, metavar="S",
                      help="of each of its measurements (default: %(default)g)")
    return parser.parse_args(argv)


def _tokens(text: str) -> int | None:
    if text != "paper" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of tokens nor 'paper'")
    return None if text == "paper" else int(text)
