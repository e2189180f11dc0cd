"""What a served SSD's state says of its device (flashmob/served.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
from flashmob import ConfigError
from flashmob.served import of_settings
from test_live import state


def test_a_served_image_that_is_gone_is_said_in_a_sentence(tmp_path: Path) -> None:
    image = tmp_path / "gone.img"
    namespaces = [{"size_bytes": 0, "media": f"file:{image}"}]
    served = state() | {"name": "a", "pid": 1, "seen_s": 0.0, "settings": {"subsystem": {"namespaces": namespaces}}}
    with pytest.raises(ConfigError, match=f"^a serves {image}, which cannot be looked at: No such file or directory$"):
        of_settings(served)
