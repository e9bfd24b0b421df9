"""`python -m vcse`, also from a source tree that is not installed."""

import sys

from vcse.cli import main

sys.exit(main())
