"""flashmob files: data sets of files, made, looked at, verified and measured."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from flashmob.cli_options import counting, option
from flashmob.errors import EXIT_WRONG, ConfigError
from flashmob.outputs import check_result, write_text
from flashmob.units import format_size, parse_size
from flashmob.usage import App

if TYPE_CHECKING:
    from flashmob.dataset import FileDataset, Place

app = App(help="Data sets of files, read past the kernel.", no_args_is_help=True)

Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A directory, an image, a block device, vfio-user:PATH or nvme-tcp:...")
]
Pattern = Annotated[str, option(None, "PATTERN", "Files whose path fits, as a shell's: '/train/*'.")]
Backend = Annotated[str, option(None, "KIND", "posix or io_uring (the kernel's file reads), driver, gpu or auto.")]
Profile = Annotated[str, option(None, "NAME", "The emulated SSD on which an image is read.")]
Device = Annotated[
    str | None,
    option(None, "TARGET", "The served SSD that a mounted directory lies on: vfio-user:PATH or nvme-tcp:..."),
]
Depth = Annotated[int, counting(None, "Commands in flight; of posix, threads.", least=1)]


@app.command()
def make(
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="An empty folder, or a new one.")],
    kind: Annotated[
        str, option(None, "KIND", "images (many small files), videos (some large ones) or huge.")
    ] = "images",
    files: Annotated[int | None, counting(None, "How many.", least=1)] = None,
    size: Annotated[str | None, option(None, "BYTES", "Of a file, about; such as 110k.")] = None,
    seed: Annotated[int, counting(None, "Names the content.")] = 0,
) -> None:
    """Writes a data set of made-up files, and a list of their checksums."""
    from flashmob.dataset import make_files

    entries = make_files(folder, kind, files=files, size_bytes=_size("--size", size), seed=seed)
    typer.echo(f"{len(entries)} files, {format_size(sum(one.size_bytes for one in entries))} in {folder}")


@app.command()
def verify(
    source: Source,
    pattern: Pattern = "*",
    backend: Backend = "auto",
    profile: Profile = "d7-ps1010",
    device: Device = None,
    depth: Depth = 32,
) -> None:
    """Reads every file once and checks it against the list of checksums that the data set holds."""
    place = _place(source, backend, profile, device, depth)
    with _dataset(place, pattern=pattern) as files:
        checked = files.verified()
        for problem in files.manifest.problems:
            typer.echo(f"wrong: {problem}", err=True)
        wrong = len(files.manifest.problems)
        count = size_bytes = 0
        for entry, error in checked:
            count += 1
            if error:
                wrong += 1
                typer.echo(f"wrong: {error}", err=True)
            else:
                size_bytes += entry.size_bytes
    if count == 0:
        raise ConfigError(f"{source} holds no files; name a data set, or another --pattern")
    typer.echo(f"{count} files, {format_size(size_bytes)} by {place.resolved()}: {wrong or 'none'} wrong")
    if wrong:
        raise typer.Exit(EXIT_WRONG)


@app.command()
def bench(
    source: Source,
    against: Annotated[
        str | None, option(None, "FOLDER", "The same files in a folder, read by the kernel in alternating windows.")
    ] = None,
    pattern: Pattern = "*",
    backend: Backend = "auto",
    profile: Profile = "d7-ps1010",
    device: Device = None,
    depth: Depth = 32,
    threads: Annotated[int, counting(None, "Threads of the kernel's reads with --against.", least=1)] = 8,
    ahead: Annotated[str, option(None, "BYTES", "Read ahead at most.")] = "64M",
    windows: Annotated[int, counting(None, "Windows of each way.", least=1)] = 5,
    seconds: Annotated[float, option(None, "S", "How long each lasts.")] = 1.0,
    seed: Annotated[int, counting(None, "Of the order.")] = 0,
    output: Annotated[
        str | None, option(None, "FILE", "Write the result as JSON; - is standard output.", "--json")
    ] = None,
) -> None:
    """Measures how fast files are read in a shuffled order, one way or two in alternating windows."""
    from flashmob.dataset import Place
    from flashmob.dataset.windows import measure

    check_result(output, "--json")
    if not 0 < seconds < 1e6:
        raise ConfigError(f"--seconds {seconds} is not possible: use more than 0")
    ways = [("kernel", Place(against, backend="posix", depth=threads))] if against is not None else []
    ways.append(("files", _place(source, backend, profile, device, depth)))
    ahead_bytes = _size("--ahead", ahead)
    document = measure(ways, windows=windows, window_s=seconds, pattern=pattern, seed=seed, ahead_bytes=ahead_bytes)
    text = json.dumps(document, indent=2) + "\n"
    if output == "-":
        sys.stdout.write(text)
        return
    if output is not None:
        write_text(output, text)
    _show(document)


def _show(document: dict[str, Any]) -> None:
    console = Console()
    console.print(f"{document['files']} files, {format_size(document['size_bytes'])}", highlight=False)
    table = Table()
    for name in ("way", "back end", "a second", "least", "most", "files a second", "CPU s/GB", "ratio"):
        table.add_column(name, justify="left" if name in ("way", "back end") else "right")
    for way in document["ways"]:
        rate = way["bw_bytes"]
        table.add_row(
            way["name"],
            way["backend"],
            *(format_size(int(rate[key])) for key in ("median", "min", "max")),
            f"{way['files_per_s']['median']:.0f}",
            f"{way['cpu_s_per_gb']['median']:.2f}",
            f"{way['ratio']['median']:.2f}",
        )
    console.print(table, highlight=False)


def _place(source: str, backend: str, profile: str, device: str | None, depth: int) -> Place:
    from flashmob.dataset import Place

    return Place(source, backend=backend, profile=profile, device=device, depth=depth)


def _dataset(place: Place, **options: Any) -> FileDataset:
    from flashmob.dataset import FileDataset

    return FileDataset(place, **options)


def _size(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    try:
        size = parse_size(text, binary=True)
    except ValueError as error:
        raise ConfigError(f"{name} {text} is not possible: {error}") from None
    if size < 1:
        raise ConfigError(f"{name} {text} is not possible: use 1 or more")
    return size
