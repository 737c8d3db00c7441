"""Fuzzes one entry, guided by coverage: `make fuzz ARGS="url -max_total_time=600"`.

What it finds new goes into `.cache/fuzz/ENTRY`, beside the seeds; libFuzzer's options follow the
entry's name. A finding is written there as `crash-…`: mend it, and add it to `tests/fuzz/found`.
"""

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["domain", "infra.targets", "tests.fuzz.entries"]):
    from tests.fuzz.entries import ENTRIES
    from tests.fuzz.seeds import seeds

ROOT = Path(__file__).parents[2]


def main() -> None:
    """Run until told to stop."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in ENTRIES:
        sys.exit(f"name one of {', '.join(ENTRIES)}; not {name!r}")
    found = ROOT / ".cache" / "fuzz" / name
    found.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(name)):
        (found / f"seed-{number:04}").write_bytes(seed)
    options = [sys.argv[0], str(found), f"-artifact_prefix={found}/", *sys.argv[2:]]
    atheris.Setup(options, ENTRIES[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
