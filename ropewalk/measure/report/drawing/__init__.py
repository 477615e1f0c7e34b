"""Figures: records of numbers, how they come from what was measured, and how they are drawn on paper."""

from ropewalk.measure.report.drawing.names import name_of as name_of
