#!/usr/bin/env python3
# Every command of the package is this file, under the command's own name.
import sys

from oxygen_ros.commands import main

sys.exit(main())
