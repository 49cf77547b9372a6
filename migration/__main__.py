"""`python -m keras_mp.migration` is `keras-mp`."""

import sys

from keras_mp.migration.cli import main

sys.exit(main())
