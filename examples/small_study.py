"""
A small study
=============

A study runs agents on problems with many seeds. It keeps every run, so that nothing is computed
twice, and makes tables and plots.
"""

# %%
# The study
# ---------
# A study is a document: usually a TOML file for ``blockmdp run``, or a dictionary as here. A list
# is an axis of a grid: this study has two horizons, two agents and five seeds, which makes 20 runs.
import tempfile

import blockmdp as bm

study = bm.Study(
    {
        "seeds": 5,
        "episodes": 3_000,
        "problem": {"name": "lock_bernoulli", "horizon": [5, 10], "switch": 0.2},
        "agent": [{"name": "URL"}, {"name": "Tabular", "on": "latent"}],
    },
    name="small",
)
print(study)

# %%
# Run it
# ------
# The runs go to a folder. If you run the study again with the same folder, only missing runs are
# done.
with tempfile.TemporaryDirectory() as folder:
    results = study.run(folder, jobs=1, quiet=True)
    print(results)
    frame = results.frame()
    table = results.table()
    figure = results.plot("sliding")

# %%
# The results
# -----------
# The table has one row for each problem and agent. A run is solved when the mean of its last 1,000
# returns is at least 90 % of the optimum.
print(table)

# %%
# ``frame()`` has one row for each run, as a pandas frame. ``plot`` draws the mean and one standard
# deviation over the seeds.
columns = ["panel", "agent", "seed", "solved_at", "trajectories"]
print(frame[columns].head(6).to_string(index=False))
