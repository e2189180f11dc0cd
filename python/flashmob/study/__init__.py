"""Studies: the same measurement at many points, once, resumable, with a table and figures of what came out.

    from flashmob.study import grid, run_study

    table = run_study("depth", grid(depth=[1, 8, 64]), measure, out="out/depth", repeats=3)

`measure` takes a point's settings and returns what it found, a dictionary that JSON can hold. `flashmob study
interfaces` is one of them.
"""

from flashmob.study.points import Settings as Settings
from flashmob.study.points import Trial as Trial
from flashmob.study.points import grid as grid
from flashmob.study.points import key as key
from flashmob.study.points import trials as trials
from flashmob.study.pool import StoppedError as StoppedError
from flashmob.study.runner import Study as Study
from flashmob.study.runner import run_study as run_study
from flashmob.study.table import Table as Table
