"""The page on which methods are seen: one HTML file for a browser, without a network or a build step."""

from ropewalk.page.assemble import html as html
