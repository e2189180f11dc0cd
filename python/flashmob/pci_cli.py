"""flashmob pci: gives NVMe drives of this machine to programs, and back to the kernel."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flashmob.cli_options import option
from flashmob.errors import ConfigError
from flashmob.pci import Drive, Machine, carry_out
from flashmob.usage import App

app = App(help="NVMe drives of this machine, for programs (vfio-pci) and back for the kernel.", no_args_is_help=True)
Address = Annotated[str, typer.Argument(metavar="ADDRESS", help="The drive, as `flashmob pci list` names it.")]
DryRun = Annotated[bool, option(None, None, "Say what would be written where, and write nothing.", "--dry-run")]


@app.command("list")
def list_drives(as_json: Annotated[bool, option(None, None, "Print JSON instead.", "--json")] = False) -> None:
    """Lists this machine's NVMe drives: who has each, and what uses it."""
    drives = Machine().drives()
    if as_json:
        print(json.dumps([asdict(drive) for drive in drives], indent=2))
        return
    if not drives:
        typer.echo("this machine has no NVMe drive on its PCI bus")
    for drive in drives:
        typer.echo(_line(drive))


@app.command()
def bind(address: Address, dry_run: DryRun = False) -> None:
    """Gives a drive to vfio-pci, so that pci:ADDRESS names it. Refused where anything uses it."""
    machine = Machine()
    _do(machine.bind_steps(address), dry_run, f"{address}: vfio-pci has it already")
    if not dry_run and (now := machine.drive(address).driver) != "vfio-pci":
        raise ConfigError(f"{address}: {now or 'no driver'} has it, not vfio-pci; look into the kernel's log (dmesg)")


@app.command()
def unbind(address: Address, dry_run: DryRun = False) -> None:
    """Gives a drive back to the kernel's own driver."""
    _do(Machine().unbind_steps(address), dry_run, f"{address}: the kernel's own driver has it already")


def _do(steps: list[tuple[Path, str]], dry_run: bool, nothing: str) -> None:
    if not steps:
        typer.echo(nothing)
    for path, text in steps if dry_run else []:
        typer.echo(f"would write {text.strip() or 'an empty line'} to {path}")
    if not dry_run:
        carry_out(steps)


def _line(drive: Drive) -> str:
    place = f"IOMMU group {drive.iommu_group}" if drive.iommu_group else "no IOMMU"
    words = [drive.driver or "no driver", place, *([", ".join(drive.disks)] if drive.disks else []), *drive.uses]
    return f"{drive.address}  {'; '.join(words)}"
