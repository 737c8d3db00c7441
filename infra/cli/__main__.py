"""`python -m infra.cli` is `tocsin`, wherever the interpreter is."""

import sys

from infra.cli import main

sys.exit(main())
