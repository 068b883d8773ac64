"""JAX's persistent cache of compiled programs, and how they are started."""

from evarl.storage.compiled import (
    keep_compiled_programs as keep_compiled_programs,
    run_programs_inline as run_programs_inline,
)
