"""Whether an engine can load an extension, checked before anything is measured."""

from __future__ import annotations

from dataclasses import dataclass

from transformers import PreTrainedModel

from ropewalk.engines.export.export import require_exportable
from ropewalk.errors import RopewalkError
from ropewalk.extension.extension import Extension
from ropewalk.hf.attach.modes import attach_layers
from ropewalk.hf.attach.trained_extension import TrainedExtension
from ropewalk.hf.probe.facts import facts_of
from ropewalk.hf.probe.probe import probe
from ropewalk.hf.probe.probed_layer import ProbedLayer
from ropewalk.methods.facts import Facts
from ropewalk.search.goal import ANY, STATIC, Goal


@dataclass(frozen=True)
class DeployTarget:
    """A model, and the engine that must load it under an extension."""

    model: PreTrainedModel
    layers: tuple[ProbedLayer, ...]
    facts: tuple[Facts, ...]  # of each layer
    trained_under: TrainedExtension

    @classmethod
    def of(cls, model: PreTrainedModel, trained_under: TrainedExtension | None = None) -> DeployTarget:
        """Probe the layers of the base model."""
        layers = probe(model)
        return cls(
            model,
            tuple(layers),
            tuple(facts_of(model, layer, len(layers)) for layer in layers),
            trained_under or TrainedExtension(),
        )

    def require(self, goal: Goal, extension: Extension) -> None:
        """Refuse an extension that does not fit the model, or that the engine cannot load."""
        extension = self.trained_under.with_line(extension)
        layers = attach_layers(list(self.layers), list(self.facts), extension)
        if goal.deployable != ANY:
            target = "transformers" if goal.deployable == STATIC else goal.deployable
            require_exportable(self.model, extension, layers, goal.facts, target, goal.target_len)

    def takes(self, goal: Goal, extension: Extension) -> bool:
        """Whether an extension is accepted."""
        try:
            self.require(goal, extension)
        except RopewalkError:
            return False
        return True
