"""The garbage collector of a process that does nothing but serve."""

import gc

NEW_OBJECTS = 5_000
"""Number of new objects after which the garbage collector looks at them."""


def collect_garbage_rarely() -> None:
    """Make the garbage collector of this process leave alone what is loaded now, and look at new objects less often.

    Call it in a process that does nothing but serve. Hundreds of turns that begin at one moment otherwise wait several
    times, a tenth of a second each, for a look at all objects, of which none is garbage.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
