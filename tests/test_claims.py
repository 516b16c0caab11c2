"""The claims of the paper, checked on runs whose outcomes are made up."""

from __future__ import annotations

import numpy as np
import pytest

from blockmdp.experiments import Results, Study
from blockmdp.experiments.outcome import Curve, Outcome
from blockmdp.experiments.store import Store
from blockmdp.paper.claims import claims_of, horizon_slopes

SEEDS = 20
AGENTS = [
    {"name": "URL", "label": "URL"},
    {"name": "PCID", "label": "PCID"},
    *({"name": "Tabular", "label": f"{q}-lat"} for q in ("OracleQ", "QLearning")),
    {"name": "Tabular", "on": "observation", "label": "OracleQ-obs"},
]
for agent in AGENTS[2:]:
    agent["learner"] = agent["label"].partition("-")[0]


@pytest.fixture
def made_up(tmp_path):
    """Store runs with the outcomes that a function makes up for the agent, H, switch and seed."""

    def make(outcome, name="figure1", agents=AGENTS, horizons=(5, 10, 20), switches=(0.2, 0.5)):
        document = {
            "seeds": SEEDS,
            "episodes": 2000,
            "problem": {
                "name": "lock_bernoulli",
                "horizon": list(horizons),
                "switch": list(switches),
            },
            "agent": agents,
        }
        study = Study(document, name, check=False)
        none = np.zeros(0)
        curve = Curve(none.astype(np.int64), none.astype(np.int64), none).to_bytes()
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        with Store(out, write=True) as store:
            store.register(study)
            for run in study.runs():
                problem = run.setting.problem
                values = outcome(run.setting.label, problem["horizon"], problem["switch"], run.seed)
                learnt = {"average": 0.4, "final": 0.5, "solved_at": 1000, "trajectories": 2000}
                ledger = values.pop("ledger", {"learn": 2000})
                store.add(run, Outcome(**learnt | values, ledger=ledger, curve=curve))
        return Results(out, name)

    return make


def claim(claims, words):
    (found,) = [each for each in claims if words in each.says]
    return found


def test_url_is_near_optimal_if_enough_runs_end_near_the_optimum(made_up):
    def outcome(label, H, switch, seed):
        good = switch == 0.2 or seed < 18  # 38 of 40
        return {"final": 0.45 if good or H < 20 else 0.449}

    found = claim(claims_of({"figure1": made_up(outcome)}), "near-optimal with probability 80%")
    assert "38 of 40 runs end within 10 % of the optimum: 95%" in found.measured
    assert found.holds is True
    others = made_up(lambda *a: {"final": 0.449}, "figure2")
    assert claim(claims_of({"figure2": others}), "near-optimal").holds is False
    undecided = made_up(lambda *a: {"final": 0.5 if a[3] % 10 < 8 else 0.0}, "figure3")
    assert claim(claims_of({"figure3": undecided}), "near-optimal").holds is None


@pytest.mark.parametrize(("final", "good", "holds"), [(0.4751, 6, True), (0.4749, 0, False)])
def test_url_is_as_good_as_the_skyline_in_most_panels(made_up, final, good, holds):
    found = made_up(lambda label, *_: {"final": final if label == "URL" else 0.5})
    found = claim(claims_of({"figure1": found}), "the skyline")
    assert f"in {good} of 6 panels" in found.measured
    assert f"in the worst panel {final / 0.5:.0%}" in found.measured
    assert found.holds is holds


def test_half_of_the_panels_are_not_most(made_up):
    found = made_up(
        lambda label, H, switch, _: {"final": 0.3 if (label, switch) == ("URL", 0.5) else 0.5}
    )
    found = claim(claims_of({"figure1": found}), "the skyline")
    assert "in 3 of 6 panels" in found.measured
    assert found.holds is False


def test_much_better_is_more_than_twice_as_good_in_every_panel(made_up):
    def outcome(label, H, switch, seed):
        q = {5: 0.26, 10: 0.25 if switch == 0.5 else 0.2, 20: 0.1}[H]
        return {"final": 0.5 if label == "URL" else q}

    claims = claims_of({"figure1": made_up(outcome)})
    found = {H: claim(claims, f"H = {H}: URL is much better") for H in (5, 10, 20)}
    assert [found[H].holds for H in found] == [False, False, True]
    assert "in 0 of 2 panels" in found[5].measured
    assert "in 1 of 2 panels" in found[10].measured
    assert "QLearning-lat reaches 0.200 to 0.250" in found[10].measured
    close = made_up(lambda label, *_: {"final": 0.5 if label == "URL" else 0.2}, "figure2")
    assert claim(claims_of({"figure2": close}), "H = 5: URL is much better").holds is True


@pytest.mark.parametrize("better", [3, 4])
def test_url_outperforms_pcid_if_it_wins_most_panels(made_up, better):
    panels = [(H, switch) for H in (5, 10, 20) for switch in (0.2, 0.5)]

    def outcome(label, H, switch, seed):
        i = panels.index((H, switch))
        if i == 5:  # too close to call
            return {"average": 0.3 + 0.1 * (seed % 2)}
        wins = i < better
        pays = 0.4 if (label == "URL") == wins else 0.3
        return {"average": pays + 0.001 * seed, "trajectories": 2000}

    found = claim(claims_of({"figure1": made_up(outcome)}), "URL outperforms PCID")
    assert f"better in {better} of 6 panels and worse in {5 - better} " in found.measured
    assert found.holds is (better == 4)
    twice = made_up(lambda label, *_: {"trajectories": 4000 if label == "URL" else 2000}, "figure2")
    assert claim(claims_of({"figure2": twice}), "URL outperforms PCID").holds is False
    alone = made_up(lambda *_: {}, "figure3", AGENTS[:1])
    found = claim(claims_of({"figure3": alone}), "URL outperforms PCID")
    assert found.holds is None
    assert "better in 0 of 0 panels" in found.measured


def test_two_agents_with_the_same_noise_are_resampled_independently(made_up):
    found = made_up(lambda label, H, s, seed: {"average": 0.3 + 0.1 * seed + (label == "URL") / 50})
    found = claim(claims_of({"figure1": found}), "URL outperforms PCID")
    assert "better in 0 of 6 panels" in found.measured  # a paired test would find all


def test_learners_on_observations_fail_if_the_best_is_far_from_the_optimum(made_up):
    def outcome(label, H, switch, seed):
        final = {5: 0.1, 10: 0.449, 20: 0.46}[H] + 0.01 * (switch == 0.5) * (H == 5)
        return {"final": final, "solved_at": 900 if H == 20 and seed == 0 else None}

    claims = claims_of({"figure1": made_up(outcome)})
    found = {H: claim(claims, f"even at small H: H = {H}") for H in (5, 10, 20)}
    assert [found[H].holds for H in found] == [True, True, False]
    assert "is 0.110 [0.110, 0.110] of 0.5 (OracleQ-obs, H = 5, switch = 0.5)" in found[5].measured
    assert found[20].measured.endswith("; 2 of 40 runs solved")
    alone = made_up(lambda *_: {}, "figure1", AGENTS[:1])
    assert claim(claims_of({"figure1": alone}), "even at small H: H = 5").measured == "not run"


def test_as_many_trajectories_as_the_paper_has_are_enough(made_up):
    most = {5: 100, 10: 1000, 20: 2500}

    def outcome(label, H, switch, seed):
        oracle = most[H] - 50 + (H == 20) * (50 + (seed == 7))  # one run in 20 has too many
        ledger = {"learn": 2000, "oracle": oracle} | ({} if H == 20 else {"test": 50})
        return {"ledger": ledger, "solved_at": None if H == 10 and seed < 10 else 1000}

    claims = claims_of({"figure1": made_up(outcome)})
    found = [claim(claims, "100 trajectories are enough"), claim(claims, "500 to 1000 tr")]
    found.append(claim(claims, "1000 to 2500 tr"))
    assert [each.holds for each in found] == [True, False, True]
    assert found[0].measured == "tuned: 100; 40 of the 40 runs with at most 100 are solved"
    assert found[1].measured.endswith("20 of the 40 runs with at most 1000 are solved")
    assert found[2].measured == (
        "tuned: 2500, 2501; 38 of the 38 runs with at most 2500 are solved"
    )
    untuned = [{"name": "URL", "label": "URL untuned", "batch": 77}]
    other = made_up(outcome, "figure2", [*AGENTS[:1], *untuned])
    assert claim(claims_of({"figure2": other}), "100 tr").measured.endswith(
        "; untuned: median 100, at most 100, with tests"
    )


def test_our_own_aims_are_judged_by_ratios_of_medians(made_up):
    def outcome(label, H, switch, seed):
        url = 1100 if H < 20 else 1101
        return {"solved_at": url if label == "URL untuned" else 1000}

    agents = [{"name": "URL", "label": "URL untuned"}, AGENTS[2]]
    untuned = made_up(outcome, "untuned", agents)
    solves, needs = claims_of({}, untuned=untuned)
    assert (solves.measured, solves.holds) == ("120 of 120 runs in 6 panels", True)
    assert needs.measured == "ratio of medians from 1.100 to 1.101; at most 1.1 in 4 of 6 panels"
    assert needs.holds is False

    def lost(label, H, switch, seed):
        return {"solved_at": None if (H, switch, seed) == (5, 0.2, 0) else 500}

    few = made_up(lost, "untuned2", agents)
    assert claims_of({}, untuned=few)[0].holds is False
    assert claims_of({}, untuned=made_up(lost, "untuned3", AGENTS[:1])) == []


def test_agents_without_arguments_are_compared_with_the_skyline(made_up):
    share = {5: 0.4, 10: 0.251, 20: 0.15}
    agents = [{"name": "OnlineURL"}, {"name": "URL"}]
    defaults = made_up(lambda _, H, *a: {"solved_at": int(1000 * share[H])}, "defaults", agents)
    skyline = made_up(lambda *_: {"solved_at": 1000}, "skyline", AGENTS[2:3])
    claims = claims_of({}, defaults=defaults, skyline=skyline)
    assert [each.holds for each in claims] == [True, True, False, True, *[True] * 4]
    assert claims[2].measured == "ratio of medians from 0.251 to 0.251 in 2 panels"
    aims = [
        each.says.partition("at most ")[2][:4].strip() for each in claims if "at most" in each.says
    ]
    assert aims == ["0.4", "0.25", "0.15", "0.5", "0.3", "0.2"]
    alone = claims_of({}, defaults=defaults)
    assert [each.says for each in alone] == [claims[0].says, claims[4].says]
    one = made_up(lambda *_: {}, "defaults", agents[:1])
    assert [each.says for each in claims_of({}, defaults=one)] == [claims[0].says]


def test_slopes_are_those_of_a_power_law(made_up):
    def outcome(label, H, switch, seed):
        return {"solved_at": None if seed == 3 else 7 * H**2, "seconds": H**1.5 / 100}

    results = made_up(outcome, "horizon", AGENTS[:2], switches=(0.5,))
    url, pcid = horizon_slopes(results)
    assert (url["problem"], url["agent"], pcid["agent"]) == ("lock_bernoulli", "URL", "PCID")
    assert url["H"] == [5, 10, 20]
    assert url["solved"] == ["19 of 20"] * 3
    assert url["trajectories"] == [175, 700, 2800]
    assert url["slope"] == pytest.approx(2)
    assert url["slope_seconds"] == pytest.approx(1.5)
    never = made_up(
        lambda *_: {"solved_at": None, "seconds": 1.0}, "never", AGENTS[:1], switches=(0.5,)
    )
    assert np.isnan(horizon_slopes(never)[0]["slope"])
