"""Networks that lose what they carry, without a word to either end."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from commandside.ports import SESSION_MS
from infra.embedded.postgres import SOCKET_NUMBER, EmbeddedPostgres
from tests.chaos import half_open
from tests.chaos.half_open import Report

ROOT: Final = Path(__file__).parents[2]


@pytest.mark.slow
def test_f122_a_peer_that_is_gone_without_a_word_is_noticed_before_any_lease_ends(
    postgres: EmbeddedPostgres,
) -> None:
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no network namespace can be made here")
    place = f"{postgres.address}/.s.PGSQL.{SOCKET_NUMBER}"
    world = 'ip link set lo up; exec "$@"'
    done = subprocess.run(
        [
            *("unshare", "--net", "bash", "-euc", world, "bash"),
            *(sys.executable, "-m", half_open.__name__, place, postgres.conninfo),
        ],
        check=False,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    report = msgspec.json.decode(done.stdout, type=Report)
    # The line worked, and then nothing came back over it: that is the fault.
    assert (report.before, report.target_before) == (42, 200)
    assert report.error
    assert report.seconds * 1_000 < SESSION_MS
    # The dead connection costs one call, and is not used again.
    assert (report.target_error, report.target_after) == ("timeout", 200)
    assert report.connections == 2
