"""A study: problems x agents x hyperparameters x seeds, read from a file or a dictionary, and run.

A study expands to settings; a setting and a seed make a run. Runs are cached by configuration.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from blockmdp.experiments.changes import set_value
from blockmdp.experiments.document import check_document, read_seeds
from blockmdp.experiments.driver import Options, run_studies
from blockmdp.experiments.errors import StudyError, one_line, short
from blockmdp.experiments.grid import expand
from blockmdp.experiments.plan import Plan
from blockmdp.experiments.ranges import at_end, check_ranges, not_runnable
from blockmdp.experiments.results import Results
from blockmdp.experiments.until import run_until

__all__ = ["Study"]

MAX_RUNS = 10**6
DEEP = re.compile(r"(?:[\w\"'-]+\s*\.\s*){100}")  # a key that takes the parser minutes


class Study(Plan):
    """Problems x agents x hyperparameters x seeds.

    Parameters
    ----------
    document : mapping
        Content of a study file:

        - `seeds`: a number of seeds, or a list of them;
        - `episodes`: number of episodes that agents learn from;
        - `problem`: a table, or a list of tables. A problem may set `episodes` and `solved` for
          itself;
        - `agent`: a table, or a list of tables. An agent may have a `label`, and a table `when`
          with the parameters that its problems must have, such as { horizon = [5, 10] };
        - `solved` (optional): when a run counts as solved, a table with `share`, `above` and
          `window`, or with `measure = "value"` and `share`.

        Every other list is an axis of a grid. A parameter of an agent may also be a range, a table
        with `low`, `high` and optionally `log` or `step`; such a study can be tuned, but not run.
    name : str, default="study"
        Name of the study.
    folder : str, Path or None, default=None
        Folder with the user's own modules.
    check : bool, default=True
        Make every problem and every agent once, so that they check their own parameters.
    trust : bool, default=True
        Import the user's own modules, and make the parts that they define. Without trust, the study
        can be looked at but not run.

    Attributes
    ----------
    name, folder, document
        As given.
    seeds : list of int
        Seeds of the runs. The seed of a run is also the seed of its problem, unless the problem
        fixes its own.
    settings : list of Setting
        Each problem with each agent, in the order of the document. Ranges have their low end.
    ranges : list of str
        Places of the ranges in the document, such as "agent[0].learner.lr".

    Raises
    ------
    StudyError
        If the document is not a valid study. The message has one line that names the place.

    See Also
    --------
    Results : Reads the stored runs of a study.

    Examples
    --------
    >>> study = Study(
    ...     {
    ...         "seeds": 2,
    ...         "episodes": 2000,
    ...         "problem": {"name": "lock_bernoulli", "horizon": [3, 5]},
    ...         "agent": [{"name": "Tabular", "learner": {"name": "OracleQ", "lr": [0.1, 0.3]}}],
    ...     }
    ... )
    >>> len(study.settings), len(study)
    (4, 8)
    >>> study.settings[1].label
    'OracleQ-lat lr=0.3'
    >>> study.only(["horizon=5", "seed=0"])
    <study study: 2 settings x 1 seeds>
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        name: str = "study",
        folder: str | Path | None = None,
        *,
        check: bool = True,
        trust: bool = True,
    ) -> None:
        check_document(document)
        path = None if folder is None else str(Path(folder).resolve())
        if trust and path is not None and path not in sys.path:
            sys.path.insert(0, path)
        self._trust = trust
        self.ranges = check_ranges(document)
        seeds, settings = read_seeds(document), expand(at_end(document, "low"), check, trust)
        if self.ranges and check:
            expand(at_end(document, "high"), check, trust)  # so that the other end is checked too
        if len(seeds) * len(settings) > MAX_RUNS:
            n = len(seeds) * len(settings)
            raise StudyError(f"a study can have at most {MAX_RUNS} runs, got {n}")
        super().__init__(name, path, dict(document), seeds, settings)

    @classmethod
    def load(cls, path: str | Path, changes: Iterable[str] = (), *, trust: bool = True) -> Study:
        """Read a study file.

        Parameters
        ----------
        path : str or Path
            A TOML file. Its stem is the name of the study. The user's own modules are looked up
            next to it, or in the folder that it names as `modules`.
        changes : iterable of str, default=()
            Values to set, such as "problem.horizon=[5]" or "agent.URL.batch=100".
        trust : bool, default=True
            Import the user's own modules, and make the parts that they define.

        Returns
        -------
        Study
            The study, not yet run.

        Raises
        ------
        StudyError
            If the file cannot be read or is not a valid study.
        """
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8-sig")
        except OSError as error:
            raise StudyError(f"{path}: {error.strerror or error}") from None
        except ValueError:
            raise StudyError(f"{path}: must be UTF-8 text") from None
        try:
            if DEEP.search(text):
                raise StudyError("is nested too deeply")
            document = tomllib.loads(text)
            for change in changes:
                set_value(document, change)
            folder = document.pop("modules", ".")
            if not isinstance(folder, str):
                raise StudyError(f"modules: must be the path of a folder, got {short(folder)}")
            name = path.stem.encode(errors="replace").decode()  # a file name may be invalid UTF-8
            return cls(document, name, path.parent / folder, trust=trust)
        except RecursionError:
            raise StudyError(f"{path}: is nested too deeply") from None
        except ValueError as error:
            raise StudyError(f"{path}: {one_line(error)}") from None

    def run(
        self,
        out: str | Path | None = None,
        *,
        jobs: int | None = None,
        cluster: str | None = None,
        timeout: float | None = None,
        memory: float | None = None,
        retry_failed: bool = False,
        quiet: bool = False,
        until: float | None = None,
        max_seeds: int = 1000,
        checkpoint: bool = False,
        device: Literal["cpu", "cuda"] = "cpu",
    ) -> Results:
        """Do the missing runs and return the results. Run it again to resume.

        Parameters
        ----------
        out : str, Path or None, default=None
            Directory in which to keep the runs. None is results/NAME.
        jobs : int or None, default=None
            Number of processes on this machine. None is one for each core.
        cluster : str or None, default=None
            Address or scheduler file of a Dask cluster to use instead of this machine.
        timeout : float or None, default=None
            Seconds after which a run fails. None sets no limit.
        memory : float or None, default=None
            GiB that the process of a run may allocate. None sets no limit.
        retry_failed : bool, default=False
            Repeat runs that failed before.
        quiet : bool, default=False
            Show no progress.
        until : float or None, default=None
            Add seeds until the mean return at the end of each agent in each panel is known this
            well: plus or minus this share of the optimal value, each with 95 % confidence. Stop
            if runs fail. None does the seeds of the study.
        max_seeds : int, default=1000
            Number of seeds at which to stop in any case.
        checkpoint : bool, default=False
            Keep the state of each fit in OUT/checkpoints, and go on from there if it was
            interrupted, or if `episodes` were raised. The results are the same.
        device : {"cpu", "cuda"}, default="cpu"
            "cuda" does the learning episodes of thousands of runs at once on an NVIDIA GPU; see
            `blockmdp.fit_many`. It allows no timeout, memory limit, checkpoint or cluster.

        Returns
        -------
        Results
            All runs of this study that the directory holds.

        Raises
        ------
        StoreError
            If the directory cannot be written, or another process writes to it.
        ExecutorError
            If no worker can do any more runs.
        """
        if not self._trust:
            raise StudyError("a study that was read without trust cannot be run")
        if self.ranges:
            raise not_runnable(self.ranges[0], f"{self.name}.toml")
        out = Path("results") / self.name if out is None else Path(out)
        if device not in ("cpu", "cuda"):
            raise StudyError(f"device must be 'cpu' or 'cuda', got {device!r}")
        if device == "cuda" and (cluster or timeout or memory or checkpoint):
            raise StudyError(
                "with --device cuda, there is no --cluster, --timeout, --memory or --checkpoint"
            )
        options = Options(jobs, cluster, timeout, memory, retry_failed, quiet, checkpoint, device)
        if until is not None:
            return run_until(self, out, until, max_seeds, options)
        (results,) = run_studies([self], out, options)
        return results
