"""`python -m horolog` is `horolog`."""

from __future__ import annotations

from horolog.cli.main import main

main()
