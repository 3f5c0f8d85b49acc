"""StableHLO rule of checks: debug checks are dropped; `checkify` must have replaced all others."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers


@lowers("check")
def _check(ctx: Any, *operands: Any, sites: Any, debug: bool) -> list[Any]:
    if not debug:
        raise ValueError(
            "Cannot abstractly evaluate a checkify.check which was not functionalized. This probably means you tried to stage "
            f"(jit/scan/pmap/...) a `check` without functionalizing it through `checkify.checkify`.\nThe check is at "
            f"{sites[0].location}.\nTry: call checkify.checkify(f) and look at the error it returns, or use "
            "checkify.debug_check, which does nothing in compiled code that is not checkified.")
    return []
