"""`accelerate launch -m draftsmith.train --config …` is `draftsmith train run --config …`."""

import sys

from draftsmith.configs.cli import main

sys.exit(main(["train", "run", *sys.argv[1:]]))
