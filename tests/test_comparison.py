"""Comparisons of two agents: numbers by hand and by another package, symmetry, and the command."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from faults import InProcess
from hypothesis import given, settings
from hypothesis import strategies as st

import blockmdp as bm
from blockmdp import cli
from blockmdp.experiments import driver, statistics
from blockmdp.experiments.comparison import Comparison, Scores
from blockmdp.experiments.errors import StoreError
from blockmdp.experiments.results import compare
from blockmdp.experiments.store import Store


def scores(panel, one, other, reached=None):
    runs = np.column_stack([one, other]).astype(np.float64)
    return Scores(panel, runs, np.ones(runs.shape, bool) if reached is None else reached)


# --- statistics -----------------------------------------------------------------------------------
def test_a_permutation_test_by_hand():
    """Of the 8 signs, 2 give a sum of at least 6, and 4 one of at least 4."""
    assert statistics.permutation_test(np.array([1.0, 2.0, 3.0])) == 2 / 8
    assert statistics.permutation_test(np.array([-1.0, 2.0, 3.0])) == 4 / 8
    assert statistics.permutation_test(np.array([0.0, 0.0])) == 1.0
    assert statistics.permutation_test(np.array([0.1, 0.2, 0.3, 0.0])) == 2 / 8  # despite rounding


def test_sampled_signs_give_almost_the_exact_p_value():
    g = np.random.default_rng(0)
    for n in (13, 50, 400):
        differences = g.normal(size=n)
        differences -= differences.mean() - 1.5 / math.sqrt(n)
        z = abs(differences.sum()) / math.sqrt((differences**2).sum())
        p = math.erfc(z / math.sqrt(2))
        assert statistics.permutation_test(differences) == pytest.approx(p, abs=0.02)
    assert statistics.permutation_test(np.ones(50)) == 1 / 10_000


def test_p_values_are_right_if_agents_are_alike():
    g = np.random.default_rng(0)
    p = np.array([statistics.permutation_test(g.normal(size=10)) for _ in range(1000)])
    for level in (0.05, 0.2, 0.5):
        assert np.mean(p <= level) == pytest.approx(level, abs=4 * math.sqrt(level / 1000))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_corrected_p_values_are_larger_and_in_the_same_order(p):
    corrected = statistics.holm(p)
    assert all(p <= q <= 1 for p, q in zip(p, corrected))
    assert min(corrected) == pytest.approx(min(1, len(p) * min(p)))
    order = np.argsort(p, kind="stable")
    assert (np.diff(np.array(corrected)[order]) >= 0).all()


# --- comparisons ----------------------------------------------------------------------------------
def test_a_duel_by_hand():
    found = Comparison(("A", "B"), "final", [scores("H = 5", [3, 1, 2, 2], [1, 1, 1, 3])])
    (duel,) = found.duels
    assert (duel.seeds, duel.one, duel.other, duel.change) == (4, 2.0, 1.5, 0.5)
    assert duel.improvement == (9 + 4 / 2) / 16  # 9 pairs are larger, and 4 equal
    assert duel.p == duel.corrected == 1.0 - 2 / 8
    assert duel.verdict == "undecided"
    assert duel.low <= 0 <= 0.5 <= duel.high


def test_fewer_trajectories_are_better_and_are_compared_by_ratio():
    many, few = [400, 800, 1600] * 4, [200, 400, 800] * 4
    (duel,) = Comparison(("A", "B"), "solved", [scores("H = 5", few, many)]).duels
    assert (duel.one, duel.other) == pytest.approx((400, 800))  # geometric means
    assert (duel.change, duel.low, duel.high) == pytest.approx((0.5, 0.5, 0.5))
    assert duel.verdict == "better"
    assert duel.improvement == pytest.approx((3 + 2.5 + 1.5) / 9)
    found = Comparison(("B", "A"), "solved", [scores("H = 5", many, few)])
    assert found.duels[0].verdict == "worse"
    assert "B 800 [" in found.summary()


def test_runs_that_were_not_solved_never_count_in_a_profile():
    reached = np.array([[True, True], [False, True]])
    found = Comparison(("A", "B"), "solved", [scores("H", [100, 500], [200, 300], reached)])
    share, low, high = found.profile(np.array([50.0, 100.0, 250.0, 1000.0]))
    assert share.tolist() == [[0.0, 0.5, 0.5, 0.5], [0.0, 0.0, 0.5, 1.0]]
    assert (low <= share).all()
    assert (share <= high).all()


values = st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=2, max_size=6)


@settings(max_examples=25, deadline=None)
@given(st.lists(values, min_size=1, max_size=3))
def test_the_other_way_round_all_signs_are_reversed(panels):
    there, back = (
        Comparison(
            ("A", "B"),
            "reward",
            [scores(str(i), *np.array(runs).T[:: 1 - 2 * flip]) for i, runs in enumerate(panels)],
        )
        for flip in (False, True)
    )
    opposite = {"better": "worse", "worse": "better", "undecided": "undecided"}
    for one, other in zip(there.duels, back.duels):
        assert one.change == pytest.approx(-other.change)
        assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
        assert one.improvement == pytest.approx(1 - other.improvement)
        assert one.corrected == pytest.approx(other.corrected)
        assert one.verdict == opposite[other.verdict]


# What rliable 1.2.0 gives for the same runs (20,000 resamples): interquartile means with their
# stratified bootstrap intervals, probability of improvement, and a performance profile.
RLIABLE = {
    "a": [
        [0.733, 0.704, 0.906, 0.664, 0.418, 0.562, 0.807, 0.52, 0.567, 0.752, 0.318, 0.843],
        [0.621, 0.873, 0.827, 0.914, 0.657, 0.883, 0.851, 0.598, 0.909, 0.717, 0.66, 0.665],
        [0.541, 0.48, 0.43, 0.402, 0.689, 0.398, 0.851, 0.695, 0.768, 0.8, 0.936, 0.824],
    ],
    "b": [
        [0.474, 0.345, 0.588, 0.449, 0.482, 0.361, 0.39, 0.327, 0.358, 0.191, 0.611, 0.525],
        [0.447, 0.345, 0.371, 0.681, 0.58, 0.897, 0.514, 0.279, 0.439, 0.501, 0.287, 0.306],
        [0.587, 0.593, 0.576, 0.65, 0.425, 0.501, 0.541, 0.186, 0.236, 0.739, 0.372, 0.588],
    ],
    "iqm": [(0.7082222222222222, 0.63794, 0.77011), (0.4614444444444444, 0.40361, 0.51783)],
    "improvement": 0.8113425925925926,
    "at": [0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
    "profile": [1.0, 1.0, 34 / 36, 25 / 36, 12 / 36, 0.0],
}


def test_another_package_gives_the_same():
    a, b = np.array(RLIABLE["a"]), np.array(RLIABLE["b"])
    panels = [scores(str(i), *two) for i, two in enumerate(zip(a, b))]
    found = Comparison(("A", "B"), "final", panels)
    for agent, expected in zip(found.iqms, RLIABLE["iqm"]):
        assert agent[0] == pytest.approx(expected[0], abs=1e-12)
        assert agent[1:] == pytest.approx(expected[1:], abs=0.01)
    assert found.improvement[0] == pytest.approx(RLIABLE["improvement"], abs=1e-12)
    share, _, _ = found.profile(np.array(RLIABLE["at"]) + 1e-12)
    assert share[0] == pytest.approx(RLIABLE["profile"], abs=1e-12)


# --- results and the command ----------------------------------------------------------------------
STUDY = {
    "seeds": 8,
    "episodes": 400,
    "solved": {"window": 100},
    "problem": {"name": "lock_bernoulli", "horizon": [2, 4]},
    "agent": [
        {"label": "skyline", "name": "Tabular", "on": "latent"},
        {"label": "blind", "name": "Tabular", "on": "observation", "by_level": False},
    ],
}  # fmt: skip


def run(folder, name="study", **changes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "make_executor", lambda *_: InProcess())
        return bm.Study({**STUDY, **changes}, name).run(folder, quiet=True)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    run(folder, "first")
    run(folder, "second", problem={"name": "lock_bernoulli", "horizon": 3, "switch": 0.5})
    return folder


def test_the_better_agent_is_better_in_every_panel(ran):
    results = bm.Results(ran, "first")
    for by in ("reward", "final", "solved"):
        first, second = results.compare("skyline", "blind", by).duels
        assert (first.panel, second.panel) == ("H = 2", "H = 4")
        assert first.verdict == "better", by
        assert first.improvement > 0.7
        assert second.verdict == ("undecided" if by == "solved" else "better"), by  # few are solved
    frame = results.frame().query("agent == 'skyline' and panel == 'H = 2'")
    reward = (frame["average"] * 400 / frame["trajectories"]).mean() / 0.5  # 0.5 is optimal
    assert results.compare("skyline", "blind").duels[0].one == pytest.approx(reward)


def test_the_command_compares_and_draws(ran, capsys):
    assert cli.main(["compare", str(ran), "skyline", "blind", "--study", "all"]) == 0
    out, err = capsys.readouterr()
    assert "first: H = 4" in out
    assert "second: " in out
    assert "skyline is better than blind in 3 of 3 panels, worse in 0" in out
    assert all(len(line) <= 100 for line in out.splitlines())
    assert (ran / "compare-skyline-blind-reward.png").stat().st_size > 1000
    assert err.count("compare-skyline-blind-reward.") == 3
    to = ran / "only.svg"
    command = ["compare", str(ran), "skyline", "blind", "--format", "csv", "--to", str(to)]
    assert cli.main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("agent,than,by,panel,seeds,one,other,change,low,high,improvement")
    assert lines[1].startswith("skyline,blind,reward,")
    assert len(lines) == 2  # of the study that was run last
    assert to.stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["skylin", "blind"], "no finished runs of 'skylin'; did you mean 'skyline'?"),
        (["skyline", "skyline"], "skyline cannot be compared with itself"),
        (["skyline", "blind", "--study", "first,third"], "has no study 'third'; it has first"),
        (["skyline", "blind", "--to", "x.gif"], "--to x.gif: must end in .png, .pdf or .svg"),
    ],
)
def test_what_cannot_be_compared_gets_one_line(ran, capsys, arguments, message):
    which = [] if "--study" in arguments else ["--study", "first"]
    assert cli.main(["compare", str(ran), *arguments, *which]) in (1, 2)
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


def test_agents_without_a_common_seed_cannot_be_compared(tmp_path):
    for seeds, agent in ((range(2), 0), (range(2, 4), 1)):
        run(tmp_path, f"study{agent}", seeds=list(seeds), agent=STUDY["agent"][agent])
    both = bm.Study({**STUDY, "seeds": 4})
    results = bm.Results(tmp_path, both)
    with pytest.raises(StoreError, match="skyline and blind have no seed in common in any panel"):
        results.compare("skyline", "blind")
    with pytest.raises(ValueError, match="by must be one of reward, final, solved, got 'best'"):
        results.compare("skyline", "blind", "best")


def test_unsolved_runs_are_compared_up_to_the_same_number_of_trajectories(tmp_path):
    """An agent that draws more trajectories is not worse for that."""
    agents = [STUDY["agent"][1], {"label": "more", "name": "PCID", "n": 50}]
    results = run(tmp_path, agent=agents, problem={"name": "lock_bernoulli", "horizon": 8})
    with pytest.raises(StoreError, match="no run of blind or more was solved: compare them by"):
        results.compare("blind", "more", "solved")
    late = {"blind": None, "more": 600}  # when the others have ended
    results.done[:] = [(s, row._replace(solved_at=late[s.label])) for s, row in results.done]
    found = results.compare("blind", "more", "solved")
    (duel,) = found.duels
    assert (duel.one, duel.other) == pytest.approx((400, 400))
    assert (duel.change, duel.improvement, duel.p) == pytest.approx((1.0, 0.5, 1.0))
    assert "runs solved in time: blind 0%, more 0%" in found.summary()


def test_runs_without_a_partner_are_counted(tmp_path):
    agents = [STUDY["agent"][0], STUDY["agent"][1] | {"when": {"horizon": 2}}]
    results = run(tmp_path, agent=agents)
    results.done[:] = [r for r in results.done if not (r[0].label == "blind" and r[1].seed < 3)]
    found = results.compare("skyline", "blind")
    assert [duel.seeds for duel in found.duels] == [5]
    assert "left out: 3 seeds and 1 panel without finished runs of both" in found.summary()


def test_rewards_without_a_known_optimum_are_not_averaged_over_panels(ran):
    results = bm.Results(ran, "first")
    results.done[:] = [(setting, row._replace(optimal=None)) for setting, row in results.done]
    found = results.compare("skyline", "blind", "final")
    frame = bm.Results(ran, "first").frame().groupby(["panel", "agent"])["final"].mean()
    assert found.duels[1].one == pytest.approx(frame["H = 4", "skyline"])
    assert "interquartile" not in found.summary()
    assert "compared by return at the end\n" in found.summary()


# --- several studies in one store -----------------------------------------------------------------
def test_every_command_says_which_study_it_shows(ran, capsys, tmp_path):
    note = "this is the study second, one of 2 in "
    for command in (["table"], ["status"], ["plot"]):
        assert cli.main([command[0], str(ran)]) == 0
        assert note in capsys.readouterr().err
        for study in ("first", "first, second, first", "all"):
            assert cli.main([command[0], str(ran), "--study", study]) == 0
            out, err = capsys.readouterr()
            assert note not in err
            assert ("second" in out) == (study != "first"), (command, study)
    for one_file in (["plot", "--to", str(tmp_path / "a.png")], ["table", "--format", "csv"]):
        assert cli.main([one_file[0], str(ran), "--study", "all", *one_file[1:]]) == 2
        assert "name one study" in capsys.readouterr().err


def test_a_run_counts_once_if_two_studies_share_it(ran, capsys):
    once = bm.Results(ran, "first")
    twice = compare([once, bm.Results(ran, "first"), bm.Results(ran, "second")], "skyline", "blind")
    assert [duel.seeds for duel in twice.duels] == [8, 8, 8]
    assert twice.duels[0].p == once.compare("skyline", "blind").duels[0].p


def test_all_runs_are_exported_unless_a_study_is_named(ran, capsys, tmp_path):
    for arguments, runs in (([], 16 * 3), (["--study", "second"], 16)):
        to = tmp_path / "runs.csv"
        assert cli.main(["export", str(ran), str(to), *arguments]) == 0
        frame = pd.read_csv(to)
        assert len(frame) == runs
        assert set(frame["study"]) == ({"second"} if arguments else {"first", "second"})
    assert "wrote 48 runs of 2 studies to" in capsys.readouterr().out


def test_a_part_of_the_runs_is_called_a_part(tmp_path, capsys):
    run(tmp_path, seeds=2)
    with Store(tmp_path, write=True) as store:
        store.register(bm.Study({**STUDY, "seeds": 5}, "study"))
    for command in ("table", "plot"):
        assert cli.main([command, str(tmp_path)]) == 0
        assert "study: 8 of 20 runs have ended so far" in capsys.readouterr().err
