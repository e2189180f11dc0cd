"""The SSDs of the mixed soak, and the places at which hosts work."""

from __future__ import annotations

import base64
import json
import random
import secrets
import socket
import subprocess
import zlib
from pathlib import Path

PART_BYTES = 1 << 20
PARTS = 8
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-4333-8444-555555555555"
# Of a churned SSD: the namespace that is formatted while others use it.
SHARED_NSID = 2

_MILD = ["delay every=50 delay=5ms", "reorder every=9 delay=500us", "error on=write p=0.01", "error on=read p=0.01"]
_LOSS = ["lose on=read every=3000 times=3", "lose on=write every=3000 times=3"]
_LINK = ["drop every=20000 times=2", "fatal every=20000 times=1"]
# What each SSD is told to do wrong, one or two at a time. Managers know no tolerance, so theirs is only late.
FAULTS = {
    "ram": [*_MILD, *_LOSS, *_LINK],
    "file": [*_MILD, *_LOSS],
    "direct": [*_MILD, *_LOSS],
    "cow": [*_MILD, *_LOSS, *_LINK],
    "churn": ["delay every=50 delay=2ms", "reorder every=9 delay=500us"],
}
# Two namespaces, and room for those that managers make.
CHURNED = f"""description = "namespaces that come and go"
[timing]
model = "none"
[subsystem]
spare_capacity_bytes = {4 * PARTS * PART_BYTES}
[[subsystem.namespaces]]
size_bytes = {PARTS * PART_BYTES}
[[subsystem.namespaces]]
size_bytes = 262144
"""


class SoakError(Exception):
    """What the soak has found wrong."""


class Place:
    """Where one host at a time works: an SSD, a door, a part of a namespace."""

    def __init__(self, folder: Path, name: str, role: str, words: list[str], flags: str, part: int, place: int) -> None:
        self.name, self.role, self.flags = name, role, flags
        self.is_own = "--media" in words
        self.stays = self.is_own
        self.is_victim = False
        self.rests_until = 0.0
        self.log = folder / f"host-{part}.log"
        self.ledger = folder / f"ledger-{part}"
        self.words = [*words, "--ledger", str(self.ledger), "--part", str(part), "--place", str(place)]

    def counts(self, host: Path) -> dict[str, int]:
        """What all its hosts have done."""
        said = subprocess.run([host, "--counts", self.ledger], capture_output=True, text=True, check=True)
        return dict(json.loads(said.stdout))


def dhchap_key() -> str:
    key = secrets.token_bytes(32)
    return f"DHHC-1:00:{base64.b64encode(key + zlib.crc32(key).to_bytes(4, 'little')).decode()}:"


def tls_key() -> str:
    key = secrets.token_bytes(32)
    return f"NVMeTLSkey-1:01:{base64.b64encode(key + zlib.crc32(key).to_bytes(4, 'little')).decode()}:"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def make_lab(folder: Path) -> tuple[Path, Path]:
    """Writes two lab files: of the server that lives, and of the one that is killed and started again."""
    keys = {"key": dhchap_key(), "controller_key": dhchap_key(), "tls": tls_key()}
    (folder / "keys.json").write_text(json.dumps(keys))
    with (folder / "cow.img").open("wb") as image:
        image.truncate(PARTS * PART_BYTES)
    common = f'vfio_user = "{folder}"\nsize = {PARTS * PART_BYTES}\n'
    texts = {name: f'[[ssd]]\nname = "{name}"\nfaults_file = "{folder}/{name}.faults"\n{common}' for name in FAULTS}
    texts["ram"] += 'profile = "optane-p4800x"\ntcp = 0\n'
    texts["file"] += f'profile = "unlimited"\ntcp = 0\nmedia = "file:{folder}/file.img"\n'
    proof = f'key = "{keys["key"]}", controller_key = "{keys["controller_key"]}"'
    texts["file"] += f'hosts = [{{ nqn = "{HOST_NQN}", {proof} }}]\n'
    texts["direct"] += f'profile = "unlimited"\ntcp = 0\nmedia = "direct:{folder}/direct.img"\nunits = 2\n'
    texts["direct"] += f'tls = "required"\ntls_key = "{keys["tls"]}"\n'
    # Less than the namespace, so that blocks are thrown out, and what it takes is taken in the first round.
    texts["direct"] += 'set = { "subsystem.namespaces.0.cache_bytes" = "4M" }\n'
    texts["cow"] += f'profile = "unlimited"\ntcp = 0\nmedia = "cow:{folder}/cow.img"\nisolate = true\n'
    texts["churn"] += f'profile = "{folder}/churn-profile.toml"\ntcp = 0\nallow = "manage"\nunits = 2\n'
    (folder / "churn-profile.toml").write_text(CHURNED)
    lab, phoenix = folder / "lab.toml", folder / "phoenix.toml"
    for file, text in (
        (lab, "".join(texts.values())),
        (
            phoenix,
            f'[[ssd]]\nname = "phoenix"\nprofile = "unlimited"\n{common}tcp = {_free_port()}\nunits = 2\n'
            f'media = "file:{folder}/phoenix.img"\n',
        ),
    ):
        file.touch(0o600)
        file.write_text(text)
    return lab, phoenix


def places_of(folder: Path, doors: dict[str, str], chance: random.Random) -> list[Place]:
    """A place for each kind of host at each kind of door."""
    keys = json.loads((folder / "keys.json").read_text())
    proof = ["--host-nqn", HOST_NQN, "--host-key", keys["key"], "--controller-key", keys["controller_key"]]
    kinds: list[tuple[str, str, str, str, list[str]]] = [
        ("ram", "vfio-user", "data", "fv", []),
        ("ram", "vfio-user", "data", "fv", []),
        ("ram", "nvme-tcp", "data", "fv", []),
        ("file", "vfio-user", "data", "f", []),
        ("file", "nvme-tcp", "data", "fd", proof),
        ("direct", "vfio-user", "data", "f", []),
        ("direct", "nvme-tcp", "data", "f", ["--tls-key", keys["tls"]]),
        ("cow", "vfio-user", "data", "fv", []),
        ("cow", "nvme-tcp", "data", "fvd", []),
        ("churn", "vfio-user", "data", "", []),
        ("churn", "vfio-user", "manage", "", []),
        ("churn", "nvme-tcp", "manage", "", []),
        ("churn", "vfio-user", "race", "", []),
        ("churn", "nvme-tcp", "race", "", []),
        ("phoenix", "vfio-user", "data", "fv", []),
        ("phoenix", "nvme-tcp", "data", "fv", []),
    ]
    racers = [part for part, kind in enumerate(kinds, 1) if kind[2] == "race"]
    used: dict[str, int] = {}
    places = []
    for part, (ssd, door, role, flags, more) in enumerate(kinds, 1):
        words = ["--target", doors[f"{ssd} {door}"], *more]
        if role in ("manage", "race"):
            words += ["--nsid", str(SHARED_NSID), "--first-part", str(racers[0]), "--last-part", str(racers[-1])]
        place = used[ssd] = used.get(ssd, -1) + 1
        places.append(Place(folder, f"{ssd} by {door} ({role})", role, words, flags, part, place))
    for part, media in enumerate(("memory", f"file:{folder}/own.img"), len(kinds) + 1):
        places.append(Place(folder, f"a device of its own ({media})", "data", ["--media", media], "f", part, 0))
    chance.shuffle(places)
    return places
