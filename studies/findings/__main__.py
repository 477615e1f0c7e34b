"""`python -m studies.findings`: write the findings in both languages, and draw their pictures.

python -m studies.findings           write what follows from the records
python -m studies.findings --check   fail if a page or a picture is not what the records say

Both need the extra `pictures`: pip install '.[pictures]' -c constraints.txt
"""

from __future__ import annotations

import sys

from studies.needs import one_line_if_missing


def main() -> None:
    """Write or check."""
    with one_line_if_missing():
        from studies.findings.page import stale, write
    if "--check" not in sys.argv:
        write()
    elif wrong := stale():
        sys.exit(f"{', '.join(wrong)} must be what the records say; run python -m studies.findings")


if __name__ == "__main__":
    main()
