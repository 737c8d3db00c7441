"""`python -m bench` is `tocsin bench`."""

import sys

from bench.program import main

sys.exit(main())
