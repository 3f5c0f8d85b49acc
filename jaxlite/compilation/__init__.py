"""From a call to compiled code: jit's options, traced programs, dispatch, stages, executables, reports, explanations."""
