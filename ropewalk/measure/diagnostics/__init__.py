"""Why a method works or fails: numbers from inside a model. Each file has one diagnostic, a pure function.

Diagnostics of attention need a model that runs our attention, `extended(model, ..., mode="attention")`; with
`Extension()` that is the unchanged model. They compute some query rows, evenly spaced, by the definition.
"""
