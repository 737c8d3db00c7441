"""The checker as a command on files."""

import subprocess
import sys
from pathlib import Path

from tests.checker.check import check
from tests.checker.generate import right
from tests.checker.inputs import read, write
from tests.checker.scene import MINUTE, START, Scene

ROOT = Path(__file__).parents[2]


def judged(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the command."""
    return subprocess.run(
        [sys.executable, "-m", "tests.checker", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_right_history_ends_with_0(tmp_path: Path) -> None:
    write(tmp_path, right(2_000))
    done = judged(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 violations" in done.stdout
    assert "fires: attempts leased" in done.stdout


def test_a_wrong_one_ends_with_1_and_the_story_of_one_run_in_order(tmp_path: Path) -> None:
    scene = Scene()
    job = scene.define()
    run = scene.plan(job, START + MINUTE)
    scene.lease(run)
    scene.hit(run, 500)
    scene.hit(run, 200)
    scene.succeed(run)
    scene.plan(job, START + 2 * MINUTE)
    write(tmp_path, scene.history())
    done = judged(tmp_path)
    assert done.returncode == 1
    story = done.stdout.partition("the story of I6")[2].partition("paths")[0].splitlines()[1:]
    kinds = [line.split("  ")[1] for line in story if line]
    assert kinds == ["C", "E", "E", "E", "H", "H", "E", "E"]
    times = [line.split("  ")[0] for line in story if line]
    assert times == sorted(times)


def test_bad_files_end_with_2_and_say_where(tmp_path: Path) -> None:
    assert judged(tmp_path).returncode == 2
    write(tmp_path, right(100))
    events = tmp_path / "events.jsonl"
    events.write_bytes(events.read_bytes() + b'{"shard": "one"}\n')
    done = judged(tmp_path)
    assert done.returncode == 2
    assert "events.jsonl:" in done.stderr
    assert "shard" in done.stderr


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    history = right(500)
    write(tmp_path, history)
    again = read(tmp_path)
    assert list(again.events) == list(history.events)
    assert list(again.hits or ()) == list(history.hits or ())
    assert list(again.projections or ()) == list(history.projections or ())
    assert list(again.history or ()) == list(history.history or ())
    assert again.scenario == history.scenario


def test_a_right_history_has_no_violation_and_every_count() -> None:
    report = check(right(10_000))
    assert report.violations == []
    assert report.paths["fires"] == report.paths["succeeded"] + report.paths["retries"]
