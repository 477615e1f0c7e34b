"""Search: the best extension for a model, a text and a target length, with the evidence."""

from ropewalk.errors import not_installed as _not_installed

try:
    import optuna as _optuna
except ModuleNotFoundError as _missing:
    raise _not_installed(_missing) from _missing

from ropewalk.search.goal import Goal as Goal

_optuna.logging.set_verbosity(_optuna.logging.WARNING)  # trials are reported by fit itself
