"""JAX's persistent cache of compiled programs."""

from evarl.storage.compiled import keep_compiled_programs as keep_compiled_programs
