"""The page that the broker serves at `/`: HTML, CSS and ES modules as they stand, no build step.

`core/` is what every view needs (requests, routes, time, keys), `parts/` what views are made of, `views/` one module a
view.  `horolog.admin.page` serves them; docs/guides/page.md shows them.
"""
