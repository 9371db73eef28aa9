"""The command, from arguments to JSON; no time is asserted."""

import json

import pytest
from PIL import Image

from oxygen_ros.bench import main as bench
from oxygen_ros.bench import side_by_side, sweep
from oxygen_ros.bench.report import modes
from oxygen_ros.bench.side_by_side import Record

MODE_KEYS = {
    "frame_s", "first_chunk_s", "chunk_rate_hz", "action_rate_hz", "tokens_per_s", "requests_completed",
    "request_latency_s", "prefix_tokens", "peak_memory_bytes", "energy_per_frame_j", "energy_per_request_j",
    "speedup_vs_isolated_sequential",
}
SMALL = ["--model", "tiny", "--denoise-steps", "2", "--decode-tokens", "4", "--steps-per-frame", "2", "--frames", "4"]


def measured(tmp_path, *options):
    file = tmp_path / "out" / "bench.json"
    code = bench.main([*SMALL, *options, "--json", str(file)])
    return code, json.loads(file.read_text())


def test_json(tmp_path, capsys):
    code, result = measured(tmp_path, "--breakdown", "--roofline")
    assert code == 0
    assert set(result) == {"machine", "model", "workload", "settings", "modes", "breakdown", "roofline"}
    assert list(result["modes"]) == ["isolated_sequential", "isolated_parallel", "shared_kv", "oxygen"]
    for mode in result["modes"].values():
        assert set(mode) == MODE_KEYS
        assert set(mode["frame_s"]) == set(mode["first_chunk_s"]) == set(mode["request_latency_s"]) == {"p50", "p99"}
        assert mode["requests_completed"] == 4
        assert mode["action_rate_hz"] == pytest.approx(10 * mode["chunk_rate_hz"])
    one = 2 * 64 + 20
    assert [m["prefix_tokens"] for m in result["modes"].values()] == [2 * one, 2 * one, one, one]
    assert result["modes"]["isolated_sequential"]["speedup_vs_isolated_sequential"] == 1.0
    assert set(result["roofline"]) == {"matmul_flops", "bandwidth_bytes_per_s", "prefill", "denoise", "decode"}
    for part in ("prefill", "denoise", "decode"):
        limit = result["roofline"][part]
        assert set(limit) == {"bound_s", "measured_s", "fraction", "cached_bound_s"}
        assert limit["cached_bound_s"] <= limit["bound_s"] == pytest.approx(limit["fraction"] * limit["measured_s"])
    assert len(result["breakdown"]) >= 10
    table = capsys.readouterr().out
    assert "GFLOP/s" in table and "isolated_parallel" in table and "arg-max of the logits" in table


@pytest.mark.parametrize("arrival", ["bursty", "poisson", "mixed"])
def test_uneven_arrivals(tmp_path, arrival):
    code, result = measured(tmp_path, "--arrival", arrival, "--modes", "isolated_sequential", "oxygen", "--frames", "8")
    assert code == 0
    base, ours = result["modes"].values()
    assert ours["speedup_vs_isolated_sequential"] == pytest.approx(ours["chunk_rate_hz"] / base["chunk_rate_hz"])
    assert ours["requests_completed"] > 0


def test_actions_alone_padded(tmp_path):
    code, result = measured(tmp_path, "--decode-tokens", "0", "--padded", "--modes", "oxygen")
    mode = result["modes"]["oxygen"]
    assert code == 0
    assert mode["prefix_tokens"] == 3 * 64 + 200
    assert mode["request_latency_s"]["p50"] is None and mode["energy_per_request_j"] is None
    assert mode["speedup_vs_isolated_sequential"] is None


def test_the_papers_balance(tmp_path):
    code, result = measured(tmp_path, "--decode-tokens", "paper", "--frames", "0")
    assert code == 0
    assert result["settings"]["decode_tokens"] == 30 * result["settings"]["steps_per_frame"]
    assert result["modes"] == {}


def test_ctrl_c_keeps_what_was_measured(tmp_path, monkeypatch):
    frame = side_by_side.Contestant.frame

    def interrupted(self, number, *rest):
        if number == 6:
            raise KeyboardInterrupt
        frame(self, number, *rest)

    monkeypatch.setattr(side_by_side.Contestant, "frame", interrupted)
    code, result = measured(tmp_path, "--warmup", "4")
    assert code == 130
    assert [mode["requests_completed"] for mode in result["modes"].values()] == [2, 2, 2, 2]


def test_figures_of_a_sweep(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "DECODE_LENGTHS", (2, 6))
    monkeypatch.setattr(sweep, "BUDGETS", (1, 2, 30))
    code, result = measured(tmp_path, "--frames", "2", "--sweep", str(tmp_path / "figures"))
    assert code == 0
    lengths, budgets = result["sweep"]["decode_length"], result["sweep"]["steps_per_frame"]
    assert [(p["decode_tokens"], p["steps_per_frame"]) for p in lengths] == [(2, 1), (6, 1)]
    assert all(list(p["modes"]) == list(result["modes"]) for p in lengths)
    assert [(p["decode_tokens"], p["steps_per_frame"]) for p in budgets] == [(4, 1), (4, 2)]
    for name in ("action_rate", "ablation", "steps_per_frame"):
        with Image.open(tmp_path / "figures" / f"{name}.png") as picture:
            shades = len(picture.convert("RGB").getcolors(1_000_000))
            assert picture.size == (960, 630) and shades > 50  # something is drawn


def test_a_chunk_beside_live_requests(tmp_path):
    code, result = measured(tmp_path, "--modes", "oxygen", "--beside", "3")
    told = result["beside"]
    assert code == 0 and told["requests"] == 3
    assert told["tokens"] == 3 * 4  # all were alive in each of the 4 frames
    assert told["change"] == pytest.approx(told["beside_s"] / told["alone_s"] - 1)


def test_minutes_at_a_full_pool(tmp_path, capsys):
    code, result = measured(tmp_path, "--decode-tokens", "12", "--frames", "0", "--endurance", "0.1")
    told = result["endurance"]
    assert code == 0 and told["frames_at_full_pool"] > 0
    assert told["growth_bytes"] is not None and "at a full pool" in capsys.readouterr().out


def test_errors_are_one_line(capsys):
    assert bench.main([*SMALL, "--device", "cuda:99"]) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("oxygen-bench: --device cuda:99 cannot be used")


def test_nothing_measured_is_null_not_zero():
    row = modes({"oxygen": Record()}, horizon=10, steady=True)["oxygen"]
    assert row["chunk_rate_hz"] is None and row["energy_per_frame_j"] is None
    assert row["frame_s"] == {"p50": None, "p99": None}
