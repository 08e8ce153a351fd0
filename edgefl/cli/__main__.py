"""Run the command as `python -m edgefl.cli`."""

import sys

from edgefl.cli.main import main

sys.exit(main())
