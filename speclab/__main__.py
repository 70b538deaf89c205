"""The command line, `python -m speclab VERB`. The verbs are defined in cli/commands.py."""

import sys

from speclab.cli import hosted

try:
    from speclab.cli.commands import main
except ImportError as _error:  # every verb needs the packages imported there
    sys.exit(f"speclab: {hosted.missing_package(_error)}")

if __name__ == "__main__":
    sys.exit(main())
