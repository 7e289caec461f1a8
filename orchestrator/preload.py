"""What a worker's process imports before it has work, torch among it: Ray imports this module when the process starts.

Without Python's garbage collector, which would look through all of it again and again while it comes in (8% of the
time) and, afterwards, in the middle of a measurement.
"""

import gc
import importlib

MODULES = ("orchestrator.actor", "tasks.measure")

gc.disable()
try:
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()
finally:
    gc.enable()
