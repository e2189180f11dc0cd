"""What plots tell results apart by: settings that make runs differ are never drawn as repetitions of one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flashmob
import pytest
from flashmob import Result
from flashmob.models import Fidelity, Nand
from flashmob.plot_series import arrange

Make = Callable[..., Result]

NAND: dict[str, Any] = {
    name: list(field.default) if isinstance(field.default, tuple) else field.default
    for name, field in Nand.model_fields.items()
}
MEMORY = {"size_bytes": 1 << 30, "lba_bytes": 512, "media": "memory"}


def device(**changes: Any) -> dict[str, Any]:
    """A result's device, of model nand, with keys of its medium changed."""
    timing = {"model": "nand", "unit_bytes": 4096, "link_bytes_per_s": 0, "nand": NAND | changes}
    return {"profile": "ps1010-nand", "seed": 1, "timing": timing, "namespaces": [MEMORY]}


def other(value: Any) -> Any:
    """A value that is none of the default's."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, list):
        return [one + 1000 for one in value]
    return "fifo" if isinstance(value, str) else 2 * value or 1000


def of_options(make: Make, **options: Any) -> Result:
    base = {"queues": 1, "queue_depth": 8, "requesters": 0, "rate_iops": 0, "read_share": 1}
    return make(8, options=base | options)


def apart(*runs: Result) -> list[str]:
    """What the results are called, none of which stands for more than one of them."""
    points = arrange(runs).points
    assert [len(point.runs) for _, point in points] == [1] * len(runs)
    names = [name for name, _ in points]
    assert len(set(names)) == len(names)
    return names


@pytest.mark.parametrize("name", list(NAND))
def test_drives_that_differ_in_a_key_of_their_medium(name: str, make: Make) -> None:
    apart(make(device=device()), make(device=device(**{name: other(NAND[name])})))


def test_over_provisioning_is_an_axis(make: Make) -> None:
    shown = arrange([make(device=device(over_provisioning=share)) for share in (0.5, 0.07, 0.25)])
    assert shown.axis is not None
    assert shown.axis.label == "over-provisioning"
    assert [name for name, _ in shown.points] == [f"ps1010-nand, {share} %" for share in (7, 25, 50)]


def test_drives_that_were_preconditioned(make: Make) -> None:
    names = apart(of_options(make, precondition="none"), of_options(make, precondition="steady"))
    assert names == ["no precondition", "steady state"]
    # Beside something else that tells them apart it is said all the same.
    apart(of_options(make, precondition="none"), of_options(make, precondition="steady", queues=4))
    # Results of older versions do not know of it.
    assert len(arrange([of_options(make), of_options(make, precondition="none")]).points) == 1


def test_writes_that_were_placed(make: Make) -> None:
    assert apart(of_options(make, placement="none"), of_options(make, placement="apart")) == [
        "writes not placed",
        "writes placed apart",
    ]
    # Results of older versions do not know of it.
    assert len(arrange([of_options(make), of_options(make, placement="none")]).points) == 1


def test_drives_with_placement(make: Make) -> None:
    def of(handles: int, **more: Any) -> Result:
        placement = {"handles": handles, "reclaim_groups": 1, "persistently_isolated": False, "enabled": True} | more
        return make(8, device=device() | {"placement": placement if handles else None})

    names = apart(of(0), of(4), of(8), of(4, persistently_isolated=True), of(4, reclaim_groups=2), of(4, enabled=False))
    assert set(names) == {
        "no placement",
        "4 placement handles",
        "8 placement handles",
        "4 placement handles, persistently isolated",
        "4 placement handles, 2 reclaim groups",
        "4 placement handles, switched off",
    }


def test_drives_that_were_filled(make: Make) -> None:
    def of(seconds: float, media: str = "memory") -> Result:
        return make(device={"namespaces": [MEMORY | {"media": media}]}, provenance={"fill_seconds": seconds})

    assert set(apart(of(0), of(0.5))) == {"not filled", "filled"}
    assert len(arrange([of(0.4), of(0.5)]).points) == 1
    assert len(arrange([of(0, "file:/x"), of(0.5, "file:/x")]).points) == 1, "the first run made the file"


@pytest.mark.parametrize("name", list(Fidelity.model_fields))
def test_runs_that_were_judged_by_other_thresholds(name: str, make: Make) -> None:
    default = {key: field.default for key, field in Fidelity.model_fields.items()}
    changed = default | {name: default[name] * 2}
    apart(*(make(device={"profile": "d", "fidelity": fidelity}) for fidelity in (default, changed)))


def test_other_settings_that_make_runs_differ(make: Make) -> None:
    for options in ({"verify_percent": 100}, {"virtual_poll_ns": 1000}):
        apart(of_options(make, verify_percent=1, virtual_poll_ns=100), of_options(make, **options))
    apart(*(make(trace={"disk": disk}) for disk in ("hm_0", "hm_1")))
    apart(*(make(device={"namespaces": [MEMORY | {"lba_bytes": lba}]}) for lba in (512, 4096)))
    apart(*(make(device={"timing": {"model": "simple", "per_request_updates": each}}) for each in (True, False)))
    apart(*(make(provenance={"version": "1", "kernel": kernel}) for kernel in ("6.1", "6.18")))
    apart(*(make(provenance={"version": "1", "cores": cores}) for cores in (2, 64)))


def test_curves_of_more_series_than_colours_look_different(make: Make) -> None:
    pytest.importorskip("matplotlib")
    runs = [
        make(qd, device={"profile": f"drive {number}"}, latency_cdf=[[50_000 + 1000 * number, 0.5], [90_000, 1.0]])
        for number in range(9)
        for qd in (1, 8)
    ]
    figure = flashmob.plot(runs)
    (axes,) = (axes for axes in figure.axes if axes.get_title(loc="left") == "Distribution of latencies")
    curves = [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
    assert len(curves) > 9
    assert len({(line.get_color(), line.get_marker()) for line in curves}) == len(curves)
