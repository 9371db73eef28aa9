#!/usr/bin/env python3
# Every command of the package is this file, under the command's own name. A process that a command starts imports it.
import sys

from oxygen_ros.commands import main

if __name__ == "__main__":
    sys.exit(main())
