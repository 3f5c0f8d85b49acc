"""What a program costs at best: how much it computes, reads and sends, from its jaxpr alone."""

from jaxlite.experimental.roofline.roofline import (
    RooflineResult,
    RooflineRuleContext,
    RooflineShape,
    register_roofline,
    register_standard_roofline,
    roofline,
    roofline_and_grad,
)

__all__ = ["RooflineResult", "RooflineRuleContext", "RooflineShape", "register_roofline", "register_standard_roofline",
           "roofline", "roofline_and_grad"]
__dir__ = lambda: __all__
