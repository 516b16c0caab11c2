"""`python -m blockmdp` is the command `blockmdp`."""

import sys

from _blockmdp_command import main

if __name__ == "__main__":
    sys.exit(main())
