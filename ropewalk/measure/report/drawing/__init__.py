"""Figures as SVG: written from the data, readable as files, and alive on the page by its script."""

from ropewalk.measure.report.drawing.names import name_of as name_of
