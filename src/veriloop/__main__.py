"""`python -m veriloop` is the command `veriloop`; `torchrun -m veriloop` runs it on many ranks."""

import sys

from veriloop.stages.cli import entry

sys.exit(entry())
